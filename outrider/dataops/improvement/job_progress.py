from collections.abc import Mapping
from typing import Any

VERSION = "version"
"""What a job waits for while somebody outside trains."""


def progress_text(status: str, stage: str, result: Mapping[str, Any]) -> str:
    """Progress of a job in words; empty where there is none.

    Examples
    --------
    >>> told = {"epoch": 2, "epochs": 8, "loss": 0.4127, "rows_s": 5210.0, "eta_s": 61.0}
    >>> progress_text("running", "train", {"progress": told})
    'epoch 2 of 8, loss 0.4127, 5,210 rows/s, 61 s left'
    >>> progress_text("waiting", "shadow", {"waits": {"for": "live records", "until_us": 0}})
    'for live records'
    """
    waits = str(result["waits"]["for"]) if status == "waiting" else ""
    is_training = waits == VERSION or (status == "running" and stage == "train")
    found = result.get("progress") if is_training else None
    if not found:
        return f"for {waits}" if waits else ""
    parts = [f"epoch {found['epoch']} of {found['epochs']}"] if found.get("epochs") else []
    parts += [f"step {found['step']:,} of {found['steps']:,}"] if not parts and found.get("steps") else []
    parts += [f"loss {found['loss']:.4g}"] if found.get("loss") is not None else []
    parts += [f"{found['rows_s']:,.0f} rows/s"] if found.get("rows_s") else []
    parts += [f"{found['eta_s']:,.0f} s left"] if found.get("eta_s") else []
    return ", ".join(parts)


def progress_share(result: Mapping[str, Any]) -> float | None:
    """Finished share of a training's steps; None where unknown."""
    found = result.get("progress") or {}
    return min(1.0, found["step"] / found["steps"]) if found.get("steps") else None
