"""Answers of a champion and its variant, and how alike they are beyond their own noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.agreement import excess
from outrider.assertions.comparison.differences import Ruler, differ, measures_of
from outrider.assertions.statistics.wilson import wilson_interval
from outrider.dataops.model_kinds.runner import EncodedRows, Runner

BATCH_ROWS = 64
AGAIN_ROWS = 17
"""Batch size of second answers: another shape, so other rounding."""


class Answers(NamedTuple):
    """Answered records, computed twice in batches of different sizes."""

    first: Batch
    again: Batch


@dataclass(frozen=True, slots=True)
class Likeness:
    """Agreement of a variant with the champion on the same records."""

    measure: str
    """What is compared: ``label``, else ``text``, else ``score``; see `comparison.differences`."""
    rows: int
    agreement: float
    """1 less the share of records answered differently beyond ``noise``, at most 1.0."""
    low: float
    """Lower end of its 95 % interval (Wilson, of records chosen before), the noise taken as it was found."""
    same: float
    """Share of records answered alike, nothing subtracted."""
    noise: float
    """Mean share of records that champion and variant answer differently in batches of another size."""
    score_delta: float | None
    """Mean absolute difference of ``score``; None without one."""


def answers_of(runner: Runner, records: Batch, rows: EncodedRows) -> Answers:
    """Answers to records, and to the rows that they are encoded as."""
    again = answer(runner, rows, batch_rows=AGAIN_ROWS, by_length=False)
    return Answers(records.with_outputs(answer(runner, rows)), records.with_outputs(again))


def answer(
    runner: Runner, rows: EncodedRows, *, batch_rows: int = BATCH_ROWS, by_length: bool = True
) -> dict[str, NDArray[Any]]:
    """Outputs by field in the order of the rows; ``by_length`` saves padding by sorting them."""
    order = np.arange(rows.count)
    if by_length and rows.lengths is not None:
        order = np.argsort(rows.lengths, kind="stable")
    parts: list[Mapping[str, NDArray[Any]]] = []
    with torch.inference_mode():
        for start in range(0, rows.count, batch_rows):
            fed = rows.take(order[start : start + batch_rows]).tensors
            answers = runner.run({name: tensor.to(runner.device) for name, tensor in fed.items()})
            parts.append(runner.decode({name: tensor.cpu() for name, tensor in answers.items()}))
    back = np.empty(len(order), dtype=np.intp)
    back[order] = np.arange(len(order))
    return {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}


def likeness(champion: Answers, variant: Answers, ruler: Ruler) -> Likeness:
    """Compare a variant's answers with the champion's to the same records, at least one.

    Raises
    ------
    ValueError
        If nothing can be compared, or the variant lacks what the champion answers.
    """
    ours, theirs = variant.first, champion.first
    missing = [name for name in theirs.names if name.startswith("outputs.") and not ours.has(name)]
    measures = measures_of(theirs, ruler)
    if missing or not measures:
        what = missing[0] if missing else f"outputs.{ruler.target}, a text or a score"
        raise ValueError(f"{what} expected; there is {', '.join(ours.names)}")
    ruler = ruler.at(theirs)
    own, other = (differ(measures[0], *two, ruler) for two in (champion, variant))
    pairs = [differ(measures[0], a, b, ruler) for a in champion for b in variant]
    noise, different = float((own.mean() + other.mean()) / 2), float(pairs[0].mean())
    _, upper = wilson_interval(float(pairs[0].sum()), theirs.rows)
    has_score = theirs.has("outputs.score")
    return Likeness(
        measure=measures[0],
        rows=theirs.rows,
        agreement=1.0 - max(0.0, float(excess(pairs, own, other).mean())),
        low=1.0 - max(0.0, upper - noise),
        same=1.0 - different,
        noise=noise,
        score_delta=_apart(theirs, ours) if has_score else None,
    )


def _apart(one: Batch, other: Batch) -> float:
    return float(np.abs(one.column("outputs.score") - other.column("outputs.score")).mean())
