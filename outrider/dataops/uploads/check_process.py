"""Check of an uploaded file or model folder, in a confined process.

``python -m outrider.dataops.uploads.check_process`` reads a request as JSON, confines itself, opens the files
as the service will, and writes what they declare. Messages of libraries stay in the process: a refusal quotes
names and dimensions that the files declare.
"""

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrider.dataops.confinement import bound_memory, clean_command, clean_environment, confine
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError

from .announced import WrongUpload

log = logging.getLogger(__name__)
TIMEOUT_S = 120.0
_MEMORY_BYTES = 2_147_483_648
_TIMES = 6
"""Memory for each byte of the files: the libraries keep several forms of them."""
_OUTPUT_BYTES = 1_048_576
_BUFFERS = 268_435_456
"""Bytes that a model may have beyond its weights."""
_ROWS = 2


def check_onnx(path: Path, source: Source, *, champion: Path | None, of: str) -> None:
    """Refuse a file that fails, or differs in inputs or outputs."""
    declared = check_apart("onnx", path, source, also=() if champion is None else (champion,))
    if champion is None:
        return
    own, theirs = declared["own"], declared["champion"]
    for side in ("inputs", "outputs"):
        for name in sorted(own[side].keys() | theirs[side].keys()):
            expected, got = (inputs[side].get(name) for inputs in (theirs, own))
            if expected is None or got is None or not _fits(expected, got):
                wanted, came = (
                    f"no {side[:-1]} of that name" if form is None else f"{form[0]} {form[1]}"
                    for form in (expected, got)
                )
                raise WrongUpload(
                    f"{path.name}: {side[:-1]} {name[:200]!r}: {wanted} expected as in {of}, got {came}",
                    file=path.name, tensor=name[:200], expected=wanted, got=came,
                )  # fmt: skip


def _fits(expected: Sequence[Any], got: Sequence[Any]) -> bool:
    """True for the same type and compatible dimensions."""
    (kind, dims), (own_kind, own) = expected, got
    if dims is None or own is None:
        return bool(kind == own_kind)
    return kind == own_kind and len(dims) == len(own) and all(
        one == other or "any" in (one, other) for one, other in zip(dims, own, strict=True)
    )  # fmt: skip


def check_apart(kind: str, path: Path, source: Source, *, also: Sequence[Path] = ()) -> dict[str, Any]:
    """Forms that a confined process finds declared; ``WrongUpload`` with its refusal."""
    files = [path, *also] if path.is_file() else sorted(path.iterdir())
    request = {
        "kind": kind, "path": str(path.absolute()), "source": source.to_json(),
        "also": [str(file.absolute()) for file in also], "bytes": sum(file.stat().st_size for file in files),
    }  # fmt: skip
    name = path.name if path.is_file() else "the folder"
    with tempfile.TemporaryDirectory(prefix="outrider-check-") as scratch:
        output, errors = Path(scratch, "output"), Path(scratch, "errors")
        environment = {**clean_environment(os.environ), "HOME": scratch, "TMPDIR": scratch}
        with output.open("wb") as out, errors.open("wb") as err:
            try:
                code = subprocess.run(
                    clean_command("outrider.dataops.uploads.check_process"),
                    input=json.dumps(request).encode(), stdout=out, stderr=err,
                    env=environment, cwd=scratch, timeout=TIMEOUT_S, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                raise WrongUpload(f"{name}: not opened within {TIMEOUT_S:g} s", file=name) from None
        text = errors.read_bytes()[-2000:].decode(errors="replace")
        try:
            answer: dict[str, Any] = json.loads(output.read_bytes().splitlines()[-1])
        except (ValueError, IndexError):
            log.warning("the check of an uploaded %s ended with %s: %r", kind, code, text)
            why = "it took more memory than its size allows" if "MemoryError" in text else f"status {code}"
            raise WrongUpload(f"{name}: its check ended: {why}", file=name) from None
    if "problem" in answer:
        log.warning("an uploaded %s is refused: %r", kind, answer.get("reason", answer["problem"])[:2000])
        raise WrongUpload(f"{name}: {answer['problem']}", file=name, **answer.get("facts", {}))
    return answer


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    path, also = Path(request["path"]), [Path(file) for file in request["also"]]
    bound_memory(_MEMORY_BYTES + _TIMES * request["bytes"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_BYTES, _OUTPUT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(TIMEOUT_S) + 1, int(TIMEOUT_S) + 1))
    confine([path, *also], [Path.cwd()])
    source = Source.from_json(request["source"])
    try:
        answer = _OPENED[request["kind"]](path, source, also)
    except WrongUpload as error:
        answer = {"problem": str(error), "facts": error.facts, "reason": repr(error.__cause__ or error)}
    except ConfigError as error:
        answer = {"problem": _problem(error, path), "reason": repr(error)}
    except MemoryError:
        answer = {"problem": "it took more memory than its size allows"}
    except Exception as error:  # noqa: BLE001 - whatever the file makes the library do
        answer = {"problem": f"its libraries fail with {type(error).__name__}", "reason": repr(error)}
    print(json.dumps(answer))  # noqa: T201 - the answer


def _onnx(path: Path, source: Source, also: Sequence[Path]) -> dict[str, Any]:
    import numpy as np

    from outrider.dataops.model_kinds.onnx_file import TYPES, declared_forms, load_onnx, parse_onnx

    model = load_onnx(source, path.parent, path)
    own, session, rng = model.forms, model.session, np.random.default_rng(0)
    feeds = {}
    for fed in session.get_inputs():
        kind, dims = own["inputs"].get(fed.name, (fed.type, None))
        if TYPES.get(fed.type) is None:
            raise WrongUpload(f"input {fed.name[:200]!r} is {kind}, which no column can be")
        shape = [size if isinstance(size, int) else _ROWS for size in fed.shape]
        if len(session.get_inputs()) == 1 and len(shape) == 2:
            width = len(model.inputs)
            if dims is not None and dims[1] not in ("any", width):
                names = ", ".join(model.inputs)
                raise WrongUpload(
                    f"input {fed.name[:200]!r}: {width} columns expected ({names}), got {dims[1]}"
                )
            shape[1] = width
        feeds[fed.name] = _drawn(shape, TYPES[fed.type], rng)
    try:
        answers = session.run(None, feeds)
    except Exception as error:  # its exceptions share no base class
        raise WrongUpload(f"onnxruntime fails on {_ROWS} drawn rows ({type(error).__name__})") from error
    try:
        model.read(dict(zip((output.name for output in session.get_outputs()), answers, strict=True)))
    except (ValueError, KeyError, TypeError) as error:
        outputs = "; ".join(f"{name[:200]} {kind} {dims}" for name, (kind, dims) in own["outputs"].items())
        wanted = (
            f"(rows, {len(model.classes)}) scores, one per class," if model.classes else "one value per row"
        )
        raise WrongUpload(
            f"its answers are no {source.task}: {wanted} expected; it declares {outputs}"
        ) from error
    champion = [declared_forms(parse_onnx(file.read_bytes(), file.name)) for file in also]
    return {"own": own, "champion": champion[0] if champion else None}


def _drawn(shape: list[int], kind: Any, rng: Any) -> Any:
    import numpy as np

    if kind is object:
        return np.full(shape, "a text", dtype=object)
    values = rng.normal(size=shape)
    return np.abs(np.round(values)).astype(kind) if np.dtype(kind).kind in "ib" else values.astype(kind)


def _folder(path: Path, source: Source, _also: Sequence[Path]) -> dict[str, Any]:
    from outrider.dataops.model_kinds.hf import declared_weights

    found = declared_weights(source, path)
    for name, by_file, by_config in found.mismatched:
        raise WrongUpload(
            f"tensor {name[:200]!r}: {by_config} expected by config.json, got {by_file}",
            tensor=name[:200], expected=by_config, got=by_file,
        )  # fmt: skip
    if found.missing:
        raise WrongUpload(
            f"its weights lack {found.missing[0][:200]!r} and {len(found.missing) - 1} more",
            tensor=found.missing[0][:200], expected="a tensor", got="none",
        )  # fmt: skip
    if found.other_bytes > _BUFFERS:
        raise WrongUpload(
            f"config.json asks for {found.other_bytes} bytes beyond the weights, at most {_BUFFERS} expected"
        )
    return {}


def _adapter(path: Path, _source: Source, _also: Sequence[Path]) -> dict[str, Any]:
    from outrider.dataops.model_kinds.adapter import read_adapter

    read_adapter(path)
    return {}


_OPENED = {"onnx": _onnx, "hf": _folder, "adapter": _adapter}


def _problem(error: ConfigError, path: Path) -> str:
    """Our own message; of a library's, only the exception's type."""
    if error.__cause__ is not None:
        return f"its library fails with {type(error.__cause__).__name__}: load it where it was made"
    own = str(error).removeprefix(f"{path.name}: ")
    return own.replace(f"{path}/", "").replace(str(path), "the folder")


if __name__ == "__main__":
    main()
