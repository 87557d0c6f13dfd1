"""Fingerprint of values that compute alike, by parts, not identity."""

import functools
import types
from collections.abc import Hashable, Mapping
from enum import Enum

import torch

PLAIN = (
    bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType, slice, range, Enum,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
)  # fmt: skip
"""Values that say all there is of them."""
_NAMES_ONLY = frozenset(
    ("_name_or_path", "architectures", "dtype", "id2label", "label2id", "problem_type", "torch_dtype",
     "transformers_version")
)  # fmt: skip
"""What a Hugging Face configuration says of its origin and its classes; no layer computes with it."""


def fingerprint(value: object) -> Hashable:
    """Hash that is equal for values that compute alike, such as one function of a file executed twice.

    Compare while the values live.
    """
    return _of(value, ())


def _of(value: object, above: tuple[int, ...]) -> Hashable:
    if isinstance(value, PLAIN):
        return type(value).__qualname__, repr(value)
    if id(value) in above:
        return "above", above.index(id(value))
    inside = (*above, id(value))
    if isinstance(value, tuple | list | set | frozenset):
        items = [_of(item, inside) for item in value]
        if isinstance(value, set | frozenset):
            return type(value).__qualname__, frozenset(items)
        return type(value).__qualname__, tuple(items)
    if isinstance(value, Mapping):
        return type(value).__qualname__, tuple((repr(key), _of(v, inside)) for key, v in value.items())
    return _of_code(value, inside) or _of_object(value, inside)


def _of_code(value: object, inside: tuple[int, ...]) -> Hashable:
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, types.FunctionType):
        return _of_function(value, inside)
    if isinstance(value, types.MethodType):
        return "method", _of(value.__func__, inside), _of(value.__self__, inside)
    if isinstance(value, functools.partial):
        return "partial", _of(value.func, inside), _of(value.args, inside), _of(value.keywords, inside)
    if isinstance(value, staticmethod | classmethod):
        return "static", _of(value.__func__, inside)
    if isinstance(value, property):
        return "property", _of(value.fget, inside)
    if isinstance(value, type):
        return _of_class(value, inside)
    return None


def _of_function(value: types.FunctionType, inside: tuple[int, ...]) -> Hashable:
    if not _is_of_a_user(value.__module__):
        if not value.__closure__:
            return "function", value.__module__, value.__qualname__
        return "only", id(value)
    cells = [cell.cell_contents for cell in value.__closure__ or ()]
    used = [value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__]
    rest = (value.__defaults__, value.__kwdefaults__, cells, used)
    return "function", value.__module__, value.__qualname__, value.__code__, _of(rest, inside)


def _names(code: types.CodeType) -> list[str]:
    inner = [name for c in code.co_consts if isinstance(c, types.CodeType) for name in _names(c)]
    return sorted({*code.co_names, *inner})


def _of_class(value: type, inside: tuple[int, ...]) -> Hashable:
    if not _is_of_a_user(value.__module__):
        return "class", value.__module__, value.__qualname__
    own = {
        name: _of(found, inside)
        for name, found in vars(value).items()
        if name not in ("__dict__", "__weakref__", "__doc__", "__annotations__", "__firstlineno__")
    }
    bases = tuple(_of(base, inside) for base in value.__bases__)
    return "class", value.__module__, value.__qualname__, bases, tuple(sorted(own.items()))


def _is_of_a_user(module: str) -> bool:
    """True for a module of a configured file, which is executed again for every version."""
    return module.startswith("outrider_user_")


def _of_object(value: object, inside: tuple[int, ...]) -> Hashable:
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return "only", id(value)
    if isinstance(value, types.BuiltinFunctionType) and not isinstance(value.__self__, torch.Tensor):
        return "builtin", value.__module__, value.__qualname__
    if hasattr(value, "to_dict") and hasattr(value, "model_type"):  # a configuration of Hugging Face
        given = {name: v for name, v in value.to_dict().items() if name not in _NAMES_ONLY}
        return "configuration", _of(type(value), inside), _of(given, inside)
    if type(value).__flags__ & _PYTHON_CLASS and hasattr(value, "__dict__"):
        return "object", _of(type(value), inside), _of(vars(value), inside)
    return "only", id(value)


_PYTHON_CLASS = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement
