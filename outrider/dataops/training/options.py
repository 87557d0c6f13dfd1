from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

Rehearsal = Literal["stratified", "balanced", "uniform"]


@dataclass(frozen=True, slots=True)
class SliceWeight:
    where: Mapping[str, Any]
    weight: float


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of the training loop; ``[models.*.retrain]`` documents them."""

    epochs: int = 8
    learning_rate: float = 1e-3
    replay_ratio: float = 2.0
    batch_rows: int = 64
    average: float = 0.0
    rehearsal: Rehearsal = "stratified"
    class_weights: Literal["balanced"] | Mapping[str, float] | None = None
    slice_weights: Sequence[SliceWeight] = ()
    weak_weight: float = 1.0
    stop_share: float = 0.0
    stop_patience: int = 3
    min_rows: int = 2
    checkpoint_s: float = 30.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Unknown options are ignored."""
        known = {field.name: given[field.name] for field in fields(cls) if field.name in given}
        if "slice_weights" in known:
            known["slice_weights"] = [
                SliceWeight(entry["where"], float(entry["weight"])) for entry in known["slice_weights"]
            ]
        found = cls(**known)
        if found.epochs < 1 or found.batch_rows < 1:
            raise ValueError(f"epochs and batch_rows must be >= 1, got {found.epochs} and {found.batch_rows}")
        return found
