"""Files that an erasure must search: data folder, suites and kept reports."""

import os
from collections.abc import Iterator
from pathlib import Path

from outrider.behavioral_tests.suite_file import SUFFIX
from outrider.dataops.comparisons import read_report
from outrider.dataops.erasure.erasing import Place
from outrider.dataops.erasure.files import PAIRS, REPORT
from outrider.errors import ValidationRefused

from .config import Settings

_INSTALLED = frozenset({"__pycache__", "node_modules", "site-packages"})


def place_of(settings: Settings) -> Place:
    """Data folder, suite files and kept comparison reports that may hold records to erase."""
    named = {path for model in settings.models for path in settings.behavior_files(model)}
    suites = {path for path in named if path.name.endswith(SUFFIX)}
    for folder in (settings.base.resolve(), *(path for path in named if path.is_dir())):
        suites.update(_suites(folder, but=settings.data_folder.resolve()))
    return Place(settings.data_folder, [*_kept(settings.base), *sorted(suites)])


def _suites(folder: Path, *, but: Path) -> Iterator[Path]:
    """Suite files below a folder, except in hidden folders, installed packages and ``but``."""
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in _INSTALLED and Path(place, name) != but
        ]
        yield from (Path(place, name) for name in names if name.endswith(SUFFIX))


def _kept(folder: Path) -> list[Path]:
    """Report and pairs that ``outrider compare --keep`` wrote into the folder."""
    try:
        read_report((folder / REPORT).read_bytes())
    except (OSError, ValidationRefused):
        return []
    return [folder / name for name in (REPORT, PAIRS) if (folder / name).is_file()]
