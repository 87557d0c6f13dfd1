"""``outrider convert``: estimators to ONNX, torch modules to safetensors. Compares the answers of both."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Json, tell, write_file

if TYPE_CHECKING:
    import pandas as pd

PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".ckpt")


def convert(
    model: Annotated[
        str, typer.Argument(help="file.py:callable returning a fitted estimator or a torch module")
    ],
    to: Annotated[Path, typer.Option(help="file to write: NAME.onnx or NAME.safetensors")],
    sample: Annotated[
        Path | None, typer.Option(help="records to compare on: CSV, Parquet or JSON lines")
    ] = None,
    inputs: Annotated[str, typer.Option(help="input columns of the sample, with commas")] = "",
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="largest difference of a score or relative value")
    ] = 1e-4,
    json: Json = False,
) -> None:
    """Convert a scikit-learn model to ONNX, or torch weights to safetensors.

    The file is written if it answers as the model does, on the sample; else the exit code is 1.
    """
    made = _made(model)
    if to.suffix == ".safetensors":
        result = _weights(made, to)
    elif to.suffix == ".onnx":
        result = _onnx(made, to, sample, [name for name in inputs.split(",") if name], tolerance)
    else:
        raise ConfigError(f"--to: NAME.onnx or NAME.safetensors expected, got {to.name}")
    tell({"file": str(to), **result}, result["summary"], json=json)
    if not result["written"]:
        raise typer.Exit(1)


def _made(reference: str) -> Any:
    """Call the function that a reference names, which returns the model."""
    from outrider.user_code import load_callable

    file = Path(reference.rpartition(":")[0] or reference)
    if file.suffix in PICKLES:
        raise ConfigError(
            f"{file} is a pickle: reading it runs whatever code is in it, so Outrider never does. "
            "Write a function that loads it, and name that: load.py:model"
        )
    try:
        return load_callable(reference, Path())()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{reference}() raised {type(error).__name__}: {error}") from error


def _weights(made: Any, to: Path) -> dict[str, Any]:
    from outrider.dataops.model_kinds.conversion import state_of
    from outrider.dataops.model_kinds.torch_models import dump_weights

    state = state_of(made)
    content = dump_weights(state)
    write_file(to, content)
    summary = f"{to}: {len(state)} tensors, {len(content)} bytes"
    return {"written": True, "tensors": len(state), "bytes": len(content), "summary": summary}


def _onnx(made: Any, to: Path, sample: Path | None, inputs: list[str], tolerance: float) -> dict[str, Any]:
    from outrider.dataops.model_kinds.conversion import convert_estimator

    found = convert_estimator(made, None if sample is None else _read(sample), inputs=inputs)
    agreement = found.agreement
    is_equal = agreement.holds(tolerance)
    if is_equal:
        write_file(to, found.content)
    where = f"{agreement.rows} {'drawn rows' if agreement.is_drawn else 'rows of the sample'}"
    parts = [] if agreement.labels is None else [f"labels equal on {agreement.labels:.2%}"]
    parts += [] if agreement.difference is None else [f"largest difference {agreement.difference:.1e}"]
    verdict = f"{to} written" if is_equal else f"{to} not written: it does not answer as the model does"
    summary = f"{verdict}: {', '.join(parts)} of {where} (tolerance {tolerance:g})"
    if agreement.is_drawn:
        summary += "\ncompared on drawn numbers alone: name a --sample of real records"
    summary += f"\ninputs = [{', '.join(map(_quoted, found.inputs))}]"
    if found.classes:
        summary += f"\nclasses = [{', '.join(map(_quoted, found.classes))}]"
    facts = dataclasses.asdict(agreement) | {"inputs": found.inputs, "classes": found.classes}
    return {"written": is_equal, "summary": summary, "tolerance": tolerance, **facts}


def _read(path: Path) -> "pd.DataFrame":
    from .tables import read_table

    found: pd.DataFrame = read_table(path).to_pandas()
    return found


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
