"""Check of an uploaded ONNX file in a killable process.

``python -m outrider.dataops.uploads.onnx_process`` reads a request as JSON, loads the file as the service
will, asks it once about zeros, and writes inputs and outputs as JSON.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from outrider.dataops.model_kinds.source import Source

from .wrong import WrongUpload

TIMEOUT_S = 120.0
_MEMORY_BYTES = 4_294_967_296
_TIMES = 6
"""Memory for each byte of the file: the library keeps several forms of it."""
_ROWS = 2


def check_onnx(path: Path, source: Source, *, champion: Path | None, file: str, of: str) -> None:
    """Refuse a file that fails, or has other inputs or outputs.

    Parameters
    ----------
    champion
        ONNX file of the champion; None where it is of another kind.

    Raises
    ------
    WrongUpload
        With the input or output, what was expected and what came.
    """
    own = _asked(path, source, file)
    if champion is None:
        return
    theirs = _asked(champion, source, of)
    for side in ("inputs", "outputs"):
        mine, expected = dict(own[side]), dict(theirs[side])
        for name in sorted(mine.keys() | expected.keys()):
            if mine.get(name) != expected.get(name):
                wanted, got = (str(one.get(name, f"no {side[:-1]} of that name")) for one in (expected, mine))
                raise WrongUpload(
                    f"{file}: {side[:-1]} {name[:200]!r}: {wanted} expected as in {of}, got {got}",
                    file=file, tensor=name[:200], expected=wanted, got=got,
                )  # fmt: skip


def _asked(path: Path, source: Source, file: str) -> dict[str, Any]:
    request = {"path": str(path), "source": source.to_json(), "bytes": path.stat().st_size}
    command = [sys.executable, "-m", "outrider.dataops.uploads.onnx_process"]
    try:
        done = subprocess.run(
            command, input=json.dumps(request).encode(), capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise WrongUpload(f"{file} is not loaded within {TIMEOUT_S:g} s", file=file) from None
    try:
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise WrongUpload(f"{file}: its check ended with {done.returncode}: {last}", file=file) from None
    if "problem" in told:
        raise WrongUpload(f"{file}: {told['problem']}", file=file)
    return told


def main() -> None:
    """Answer the request on stdin."""
    request = json.loads(sys.stdin.buffer.read())
    most = _MEMORY_BYTES + _TIMES * request["bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        answer = _checked(Path(request["path"]), Source.from_json(request["source"]))
    except Exception as error:  # noqa: BLE001 - whatever the file makes the library do
        answer = {"problem": str(error).replace("\n", " ")[:500] or type(error).__name__}
    print(json.dumps(answer))  # noqa: T201 - the answer


def _checked(path: Path, source: Source) -> dict[str, Any]:
    import numpy as np

    from outrider.dataops.model_kinds.onnx_file import TYPES, load_onnx

    # By its bytes: a file that refers to others beside it finds none.
    model = load_onnx(source, path.parent, path.read_bytes())
    session = model.session
    feeds = {}
    for fed in session.get_inputs():
        kind = TYPES.get(fed.type)
        if kind is None:
            raise ValueError(f"input {fed.name} is {fed.type}, which no column can be")
        shape = [size if isinstance(size, int) else _ROWS for size in fed.shape]
        if len(session.get_inputs()) == 1 and len(shape) == 2:
            width = len(model.inputs)
            if isinstance(fed.shape[1], int) and fed.shape[1] != width:
                raise ValueError(
                    f"input {fed.name}: {width} columns expected ({', '.join(model.inputs)}), "
                    f"got {fed.shape[1]}"
                )
            shape[1] = width
        feeds[fed.name] = np.full(shape, "" if kind is object else 0, dtype=kind)
    names = [one.name for one in session.get_outputs()]
    model.read(dict(zip(names, session.run(None, feeds), strict=True)))
    return {
        "inputs": [(one.name, f"{one.type} {_shown(one.shape)}") for one in session.get_inputs()],
        "outputs": [(one.name, f"{one.type} {_shown(one.shape)}") for one in session.get_outputs()],
    }


def _shown(shape: list[Any]) -> str:
    return str([size if isinstance(size, int) else "any" for size in shape])


if __name__ == "__main__":
    main()
