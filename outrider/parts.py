"""Parts of the installation, such as ``outrider[torch]``."""

from collections.abc import Iterable
from importlib.util import find_spec

PARTS: dict[str, tuple[str, ...]] = {
    "torch": ("torch", "safetensors"),
    "sklearn": ("sklearn",),
    "gx": ("great_expectations",),
    "hf": ("transformers", "peft", "datasets"),
    "onnx": ("onnx", "onnxruntime", "skl2onnx"),
    "gpu": ("torchao",),
}
"""Modules of each part, as ``pyproject.toml`` lists their packages."""
_WITH_TORCH = {"torch", "hf", "gpu"}
_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def missing_parts(parts: Iterable[str]) -> list[str]:
    """Parts that lack a module."""
    return [part for part in parts if not all(map(_is_installed, PARTS[part]))]


def install_command(parts: Iterable[str]) -> str:
    """Command that installs parts.

    A missing torch comes first, as its CPU build: else pip brings gigabytes of CUDA.

    Examples
    --------
    >>> install_command(["gx"])
    "pip install 'outrider[gx]'"
    """
    named = sorted(set(parts))
    before = f"{_TORCH} && " if _WITH_TORCH.intersection(named) and not _is_installed("torch") else ""
    return f"{before}pip install 'outrider[{','.join(named)}]'"


def lack_of(parts: Iterable[str], user: str) -> str | None:
    """Sentence with the command for parts that ``user`` lacks, or None."""
    missing = missing_parts(parts)
    if not missing:
        return None
    modules = [module for part in missing for module in PARTS[part] if not _is_installed(module)]
    return f"{user} needs {' and '.join(modules)}, not installed here: {install_command(missing)}"


def install_hint(error: BaseException) -> str:
    """Command that installs the module that an error names, as a clause.

    Examples
    --------
    >>> install_hint(ModuleNotFoundError("No module named 'great_expectations'", name="great_expectations"))
    "; pip install 'outrider[gx]'"
    """
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    found = next((part for part, modules in PARTS.items() if name in modules), None)
    return "" if found is None else f"; {install_command([found])}"


def _is_installed(module: str) -> bool:
    found = find_spec(module)
    return found is not None and found.origin is not None  # a folder of that name is no package
