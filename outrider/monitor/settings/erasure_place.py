"""Data folder and suites of a configuration, as an erasure takes them."""

from outrider.behavioral_tests.suite_file import SUFFIX
from outrider.dataops.erasure.erasing import Place

from .config import Settings


def place_of(settings: Settings) -> Place:
    """Data folder of a configuration, with suites that may hold records."""
    suites = [path for model in settings.models for path in settings.behavior_files(model)]
    return Place(settings.data_folder, sorted({path for path in suites if path.name.endswith(SUFFIX)}))
