from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import text_of
from outrider.dataops.ledger.backfill import CHAMPION
from outrider.dataops.ledger.class_scores import stored_scores
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.measures import RecordKeys, measure_rows
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.ledger.outcomes import SCALE

Floats = NDArray[np.float64]
CALLS = ("latency_s", "first_token_s", "input_tokens", "output_tokens", "cost_usd")
"""Numbers of a call, in ``attrs``, as chat bodies and OpenTelemetry put them."""
_ERROR = "attrs.error"


def note_measures(
    effects: Effects,
    judged: Batch,
    *,
    versions: Sequence[str | None],
    seq: NDArray[np.int64],
    received: Mapping[int, int],
    slices: Sequence[str | None],
    target: str,
) -> None:
    if not judged.rows:
        return
    minute = minutes_of_records(seq, received)
    keys = RecordKeys(versions, slices, minute, judged.column("weight"))
    values = _calls(judged) if effects.owner == CHAMPION else _beside(judged, target)
    effects.measures += measure_rows(effects.model, values, keys)
    _note_live(effects, dict(zip(judged.keys.tolist(), slices, strict=True)), received)


def stored_confidences(
    judged: Batch, *, target: str = "label", positive: int | str | None = None
) -> list[int | None]:
    """Confidence of each answer as ``record.confidence``: ``outputs.score`` (of class ``positive`` if
    set), else the largest probability."""
    sure = _confidences(judged)
    name = f"outputs.{target}"
    if positive is not None and judged.has("outputs.score") and judged.has(name):
        sure = np.where(matches(judged.arrow(name), [positive] * judged.rows), sure, 1.0 - sure)
    known = np.isfinite(sure) & (sure >= 0.0) & (sure <= 1.0)
    scaled = np.rint(np.where(known, sure, 0.0) * SCALE).astype(np.int64).tolist()
    return [value if is_known else None for value, is_known in zip(scaled, known.tolist(), strict=True)]


def stored_class_scores(judged: Batch) -> list[bytes | None]:
    probs = _probs(judged)
    return [None] * judged.rows if probs is None else stored_scores(probs)


def _confidences(judged: Batch) -> Floats:
    numbers = _numbers(judged, "outputs.score")
    if numbers is None:
        probs = _probs(judged)
        numbers = None if probs is None else probs.max(axis=1)
    return np.full(judged.rows, np.nan) if numbers is None else numbers


def _probs(judged: Batch) -> Floats | None:
    if not judged.has("outputs.probs"):
        return None
    try:
        vectors = np.asarray(judged.tensor("outputs.probs", null=np.nan), dtype=np.float64)
    except (TypeError, ValueError):  # vectors of changing length
        return None
    return vectors if vectors.ndim == 2 and vectors.shape[1] else None  # else one for each token or pixel


def _numbers(judged: Batch, name: str) -> Floats | None:
    """Column as numbers, NaN for null; None where it has not one number per record."""
    if not judged.has(name):
        return None
    try:
        found = np.asarray(judged.column(name, null=np.nan), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 1 else None


def _calls(judged: Batch) -> dict[str, Floats]:
    found = {name: _numbers(judged, f"attrs.{name}") for name in CALLS}
    known = {name: values for name, values in found.items() if values is not None}
    if judged.has(_ERROR):
        known["errors"] = np.array([bool(text) for text in text_of(judged, _ERROR)], dtype=np.float64)
    elif known:
        known["errors"] = np.zeros(judged.rows)
    return known


def _beside(judged: Batch, target: str) -> dict[str, Floats]:
    """Agreement of a challenger with the champion's replica, per record."""
    found = {"judged": np.ones(judged.rows)}
    champion = judged.answers(CHAMPION) if CHAMPION in judged.answer_slots else None
    name = f"outputs.{target}"
    if champion is not None and champion.has(name) and judged.has(name):
        agrees = matches(judged.arrow(name), champion.arrow(name))
        known = ~(judged.is_null(name) | champion.is_null(name))
        found["agreement"] = np.where(known, agrees, np.nan)
    return found


def _note_live(effects: Effects, slices: Mapping[str, str | None], received: Mapping[int, int]) -> None:
    """Add verdicts of live tests: 1 for a failed question, weighted by the chances of record and question."""
    for one in effects.live_verdicts:
        rows = len(one.failed)
        keys = RecordKeys(
            [one.version] * rows,
            [slices.get(key) for key in one.keys.tolist()],
            minutes_of_records(one.seq, received),
            one.weight,
        )
        effects.measures += measure_rows(
            effects.model, {f"live:{one.test}": one.failed.astype(np.float64)}, keys
        )


def minutes_of_records(seq: NDArray[np.int64], received: Mapping[int, int]) -> NDArray[np.int64]:
    blocks, place = np.unique(seq, return_inverse=True)
    times = np.array([received[block] for block in blocks.tolist()], dtype=np.int64)
    found: NDArray[np.int64] = (times - times % MINUTE_US)[place]
    return found
