"""One line of JSON per figure, the same for every benchmark."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and what it is held against.

    Attributes
    ----------
    ratio
        ``value`` over the value of ``against``.
    target
        What ``ratio`` should reach; None while a figure is only recorded.
    """

    name: str
    value: float
    unit: str
    against: str
    ratio: float
    target: float | None = None

    @property
    def meets(self) -> bool | None:
        """Whether the target is met."""
        return None if self.target is None else self.ratio >= self.target

    def show(self) -> None:
        """Print the line."""
        fields = asdict(self) | {"meets": self.meets}
        shown = {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in fields.items()}
        print(json.dumps(shown), flush=True)
