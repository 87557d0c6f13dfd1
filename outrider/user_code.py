"""Python files that the configuration names, executed only here."""

import importlib.util
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .errors import ConfigError
from .parts import install_hint


class _WithoutCache(SourceFileLoader):
    """Loader that compiles what the file says now.

    A cached compilation is told by size and second: an edit of the same length within one would be missed.
    """

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's signature
        """Code of the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def load_file(path: Path | str) -> ModuleType:
    """Execute a configured Python file as a module of its own.

    Its folder is importable while it runs, so that it may use its neighbours.

    Raises
    ------
    ConfigError
        If it is missing or raises; the message names the file and the line.
    """
    path = Path(path).resolve()
    name = f"outrider_user_{blake2b(str(path).encode(), digest_size=6).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ConfigError(f"{path} does not exist or is not a Python file")
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = _WithoutCache(name, str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ConfigError(
            f"{error.filename or path}:{error.lineno or 0}: {type(error).__name__}: {error.msg}"
        ) from error
    except Exception as error:
        raise ConfigError(raised_in(path, error)) from error
    return module


def raised_in(path: Path, error: BaseException) -> str:
    """File, its last line reached, and message of a user's error."""
    place = error.__traceback__
    line = 0
    while place is not None:
        if place.tb_frame.f_code.co_filename == str(path):
            line = place.tb_lineno
        place = place.tb_next
    return f"{path}:{line}: {type(error).__name__}: {error}{install_hint(error)}"


def load_callable(reference: str, folder: Path) -> Any:
    """The callable that ``file.py:name`` names, the file taken relative to ``folder``.

    Raises
    ------
    ConfigError
        If the reference has another form, the file cannot be executed, or the name is not callable.
    """
    file, separator, name = reference.rpartition(":")
    if not separator or not file or not name:
        raise ConfigError(f"{reference!r}: expected file.py:name, for example model.py:predict")
    found = getattr(load_file(folder / file), name, None)
    if not callable(found):
        what = "is not defined there" if found is None else f"is {type(found).__name__}, not callable"
        raise ConfigError(f"{reference!r}: {name} {what}")
    return found


def innermost_line(error: BaseException, folder: Path) -> str:
    """Innermost line of a folder's files in an error, as a clause."""
    frames = traceback.extract_tb(error.__traceback__)
    return _stood_at(((frame.filename, frame.lineno or 0) for frame in reversed(frames)), [folder])


def traced_line(text: str, folders: Sequence[Path]) -> str:
    """Innermost line of folders' files in a fault handler's text."""
    return _stood_at(re.findall(r'File "(.+?)", line (\d+)', text), folders)


def _stood_at(frames: Iterable[tuple[str, int | str]], folders: Sequence[Path]) -> str:
    bases = [folder.resolve() for folder in folders]
    for file, line in frames:
        path = Path(file)
        if "site-packages" not in path.parts and any(path.is_relative_to(base) for base in bases):
            return f"; it stood at {path.name}:{line}"
    return ""
