"""What a figure on a device says, as a line of JSON and as a row of a table."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import torch


@dataclass(frozen=True, slots=True)
class Device:
    """Where figures were measured, and when.

    Attributes
    ----------
    name
        As the driver calls it; the kind of processor where it is one.
    """

    kind: str
    name: str
    torch: str
    python: str
    date: str

    @classmethod
    def of(cls, kind: str) -> "Device":
        """The device at hand."""
        name = torch.cuda.get_device_name() if kind == "cuda" else f"{platform.machine()} CPU, one thread"
        date = f"{datetime.now(UTC):%Y-%m-%d}"
        return cls(kind, name, torch.__version__, platform.python_version(), date)


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """A measured value, what it is held against, and what it did to the answers.

    Attributes
    ----------
    ratio
        ``value`` over the value of ``against``; the larger the better.
    target
        What ``ratio`` should reach on a GPU.
    noise
        Largest difference of a probability to that of the same model in float32, in one static shape.
    flips
        Share of the records on which an assertion of low margins then says something else.
    """

    name: str
    value: float
    unit: str
    against: str
    ratio: float
    target: float
    noise: float | None = None
    flips: float | None = None

    def line(self, device: Device) -> dict[str, object]:
        """Everything of it; a figure of a processor has no target."""
        target = self.target if device.kind == "cuda" else None
        meets = None if target is None else self.ratio >= target
        fields = asdict(self) | {"target": target, "meets": meets, "device": device.name, "date": device.date}
        return {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in fields.items()}

    def show(self, device: Device) -> None:
        """Print the line."""
        print(json.dumps(self.line(device)), flush=True)


def table(figures: Sequence[GpuFigure], device: Device) -> str:
    """Markdown of all figures, headed by device and date."""
    about = f"{device.name}, torch {device.torch}, Python {device.python}, {device.date}"
    rows = [
        f"**Measured on {about}.** Every ratio is to what was measured beside it in the same process.",
        "",
        "| figure | value | against | ratio | target | output noise | assertions that flip |",
        "|---|---|---|---|---|---|---|",
    ]
    for figure in figures:
        line = figure.line(device)
        target = "none on a CPU" if line["target"] is None else f"{line['target']} ({_verdict(line)})"
        noise = "-" if figure.noise is None else f"{figure.noise:.2g}"
        flips = "-" if figure.flips is None else f"{100 * figure.flips:.2g} %"
        rows.append(
            f"| `{figure.name}` | {line['value']} {figure.unit} | {figure.against} | {line['ratio']} "
            f"| {target} | {noise} | {flips} |"
        )
    return "\n".join(rows) + "\n"


def _verdict(line: dict[str, object]) -> str:
    return "met" if line["meets"] else "missed"
