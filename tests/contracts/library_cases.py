"""One case per assertion of the library: how it is made, another parameter, and traffic on which it fires."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch
from outrider.assertions import library as lib

ROWS = 80


@dataclass(frozen=True)
class Case:
    """``changed`` differs from ``make`` in one parameter; ``fires_on_nulls`` for what finds nulls."""

    make: Callable[[], Assertion]
    changed: Callable[[], Assertion]
    fires_on_nulls: bool = False


def traffic() -> Batch:
    """Records with something wrong for every assertion of the library, nulls in every column among them."""
    rng = np.random.default_rng(7)
    probs = rng.dirichlet([0.6, 0.6, 0.6], ROWS)
    probs[3] = np.nan
    embedding = rng.normal(size=(ROWS, 4))
    embedding[5], embedding[6] = 30.0, np.nan
    celsius = rng.normal(21, 1, ROWS)
    celsius[[4, 50]] = [70.0, np.nan]
    entity = [None if row % 19 == 18 else str(rng.choice(["a", "b"])) for row in range(ROWS)]
    series = rng.normal(size=ROWS)
    series[20:29], series[41], series[42] = 1.0, 40.0, np.nan
    relation: list[str | None] = list(rng.choice(["Husband", "Wife", "Own-child"], ROWS))
    sex: list[str | None] = ["Male" if one == "Husband" else "Female" for one in relation]
    relation[2], sex[2], relation[9], sex[10] = "Husband", "Female", None, None
    words = ["02139", "10115", "bad", None]
    items = [["a", "b"], ["a", "b", "a"], [], None, ["x"]]
    scores = [[0.9, 0.1], [0.1, 0.9, 0.5], [], None, [0.2]]
    seconds = np.cumsum(rng.choice([1, 2, 500], ROWS, p=[0.5, 0.4, 0.1]))
    label = np.array(rng.choice(["cat", "dog", "eel"], ROWS), dtype=object)
    label[11] = None
    columns = {
        "ts": np.datetime64("2026-01-05T00:00:00", "us") + seconds.astype("timedelta64[s]"),
        "entity": entity,
        "inputs.celsius": _nulled(celsius, 12),
        "inputs.age": _nulled(rng.integers(-5, 130, ROWS).astype(np.float64), 13),
        "inputs.count": pa.array(
            [None if row == 14 else int(v) for row, v in enumerate(rng.permutation(ROWS))]
        ),
        "inputs.series": _nulled(series, 15),
        "inputs.net": _nulled(rng.choice([100.0, 90.0], ROWS), 16),
        "inputs.tax": np.full(ROWS, 19.0),
        "inputs.sum": np.full(ROWS, 119.0),
        "inputs.relation": relation,
        "inputs.sex": sex,
        "inputs.zip": [words[row % 4] for row in range(ROWS)],
        "attrs.stray": [None if row % 7 else "x" for row in range(ROWS)],
        "outputs.label": label,
        "outputs.score": _nulled(probs.max(axis=1), 17),
        "outputs.probs": probs,
        "outputs.logits": np.log(np.nan_to_num(probs, nan=0.3) + 1e-9),
        "outputs.embedding": embedding,
        "outputs.items": pa.array([items[row % 5] for row in range(ROWS)], pa.list_(pa.string())),
        "outputs.scores": pa.array([scores[row % 5] for row in range(ROWS)], pa.list_(pa.float64())),
    }
    batch = Batch.from_columns(columns, model="m")
    return batch.with_answers({"2": answers(batch, 1), "3": answers(batch, 2)})


def answers(batch: Batch, seed: int) -> dict[str, object]:
    """What a challenger says: often the same."""
    rng = np.random.default_rng(seed)
    label = np.where(rng.random(batch.rows) < 0.2, "eel", batch.column("outputs.label"))
    score = batch.column("outputs.score") + rng.normal(0, 0.05, batch.rows)
    return {"label": label, "score": score, "embedding": batch.tensor("outputs.embedding")}


def _nulled(values: NDArray[Any], row: int) -> pa.Array:
    mask = np.zeros(len(values), dtype=np.bool_)
    mask[row] = True
    return pa.array(values, mask=mask)


REFERENCE = np.random.default_rng(0).normal(size=(300, 4))
LABELS = (REFERENCE[:, 0] > 0).astype(np.int64)
TABLE = np.array([[0.5, 0.6], [0.5, 0.7], [0.5, 0.8]])
TRAINING = {"id": [str(row) for row in range(60)], "inputs.net": [100.0] * 60, "inputs.zip": ["02139"] * 60}
CHANGED = TRAINING | {"inputs.net": [100.0] * 59 + [90.0]}
PAIRS = [("cat", "dog"), ("dog", "cat")]
SELECTED: dict[str, Any] = {
    "positive": "cat", "at_most": 0.0, "rows": 30, "confidence": 0.2, "by": "entity"
}  # fmt: skip
AGE, SERIES = "inputs.age", "inputs.series"

CASES: dict[str, Case] = {
    "adds_up": Case(
        lambda: lib.adds_up(["inputs.net", "inputs.tax"], "inputs.sum"),
        lambda: lib.adds_up(["inputs.net", "inputs.tax"], "inputs.sum", tolerance=0.2),
    ),
    "blocked_items": Case(lambda: lib.blocked_items(["x"]), lambda: lib.blocked_items(["x", "y"])),
    "bounds": Case(lambda: lib.bounds(AGE, low=0, high=120), lambda: lib.bounds(AGE, low=0, high=121)),
    "categories": Case(
        lambda: lib.categories("outputs.label", ["cat", "dog"]),
        lambda: lib.categories("outputs.label", ["cat"]),
    ),
    "contradicts_neighbours": Case(
        lambda: lib.contradicts_neighbours(REFERENCE, LABELS, classes=("cat", "dog"), confident=0.5),
        lambda: lib.contradicts_neighbours(REFERENCE, 1 - LABELS, classes=("cat", "dog"), confident=0.5),
    ),
    "determines": Case(
        lambda: lib.determines("inputs.relation", "inputs.sex", {"Husband": "Male", "Wife": "Female"}),
        lambda: lib.determines("inputs.relation", "inputs.sex", {"Husband": "Male"}),
    ),
    "duplicate_items": Case(lambda: lib.duplicate_items(), lambda: lib.duplicate_items("outputs.scores")),
    "empty_slate": Case(lambda: lib.empty_slate(), lambda: lib.empty_slate(at_least=2), fires_on_nulls=True),
    "ensemble_disagrees": Case(
        lambda: lib.ensemble_disagrees(["2", "3"]), lambda: lib.ensemble_disagrees(["2", "3"], share=0.9)
    ),
    "far_from_neighbours": Case(
        lambda: lib.far_from_neighbours(lib.fit_neighbours(REFERENCE)),
        lambda: lib.far_from_neighbours(lib.fit_neighbours(REFERENCE, quantile=0.9)),
    ),
    "finite": Case(
        lambda: lib.finite(["outputs.probs", "outputs.scores", SERIES]), lambda: lib.finite(["outputs.probs"])
    ),
    "high_energy": Case(lambda: lib.high_energy(0.0), lambda: lib.high_energy(0.1)),
    "high_entropy": Case(lambda: lib.high_entropy(), lambda: lib.high_entropy(above=0.6)),
    "implies": Case(
        lambda: lib.implies("inputs.relation", ["Husband"], "inputs.sex", ["Male"]),
        lambda: lib.implies("inputs.relation", ["Husband"], "inputs.sex", ["Male", None]),
    ),
    "label_differs": Case(
        lambda: lib.label_differs("2"), lambda: lib.label_differs("2", score="outputs.score", above=0.01)
    ),
    "low_margin": Case(lambda: lib.low_margin(below=0.2), lambda: lib.low_margin(below=0.3)),
    "low_score": Case(lambda: lib.low_score(), lambda: lib.low_score(below=0.7)),
    "mahalanobis": Case(
        lambda: lib.mahalanobis(lib.fit_mahalanobis(REFERENCE)),
        lambda: lib.mahalanobis(lib.fit_mahalanobis(REFERENCE, LABELS)),
    ),
    "monotone": Case(
        lambda: lib.monotone("inputs.count"), lambda: lib.monotone("inputs.count", direction="down")
    ),
    "multiple_of": Case(
        lambda: lib.multiple_of("inputs.celsius", 1.0), lambda: lib.multiple_of("inputs.celsius", 2.0)
    ),
    "never_together": Case(
        lambda: lib.never_together(
            "inputs.relation", "inputs.sex", [("Husband", "Female"), ("Wife", "Male")]
        ),
        lambda: lib.never_together("inputs.relation", "inputs.sex", [("Husband", "Female")]),
    ),
    "order_disagrees": Case(lambda: lib.order_disagrees(), lambda: lib.order_disagrees(tolerance=0.9)),
    "ordered": Case(
        lambda: lib.ordered(AGE, "inputs.sum"), lambda: lib.ordered(AGE, "inputs.sum", tolerance=1.0)
    ),
    "overconfident": Case(lambda: lib.overconfident(TABLE), lambda: lib.overconfident(TABLE + 0.01)),
    "required": Case(
        lambda: lib.required([AGE, "inputs.zip"]), lambda: lib.required([AGE]), fires_on_nulls=True
    ),
    "score_differs": Case(
        lambda: lib.score_differs("2", above=0.05), lambda: lib.score_differs("2", above=0.06)
    ),
    "selection_gap": Case(
        lambda: lib.selection_gap("inputs.sex", ["Male", "Female"], **SELECTED),
        lambda: lib.selection_gap("inputs.sex", ["Male", "Female"], **SELECTED | {"rows": 31}),
    ),
    "served_differs": Case(
        lambda: lib.served_differs(TRAINING), lambda: lib.served_differs(CHANGED), fires_on_nulls=True
    ),
    "stuck_value": Case(lambda: lib.stuck_value(SERIES, rows=3), lambda: lib.stuck_value(SERIES, rows=4)),
    "swapped": Case(
        lambda: lib.swapped(AGE, "inputs.sum", edges=[30.0], cells=[(0, 1)]),
        lambda: lib.swapped(AGE, "inputs.sum", edges=[31.0], cells=[(0, 1)]),
    ),
    "text_pattern": Case(
        lambda: lib.text_pattern("inputs.zip", "[0-9]{5}"), lambda: lib.text_pattern("inputs.zip", "[0-9]+")
    ),
    "time_gap": Case(lambda: lib.time_gap(300.0), lambda: lib.time_gap(301.0)),
    "unit_mixup": Case(
        lambda: lib.unit_mixup("inputs.celsius", low=15, high=30),
        lambda: lib.unit_mixup("inputs.celsius", low=15, high=30, conversions={"k": (1.0, -273.15)}),
    ),
    "unknown_columns": Case(
        lambda: lib.unknown_columns([name for name in traffic().names if name != "attrs.stray"]),
        lambda: lib.unknown_columns(traffic().names),
    ),
    "unseen_transition": Case(
        lambda: lib.unseen_transition("outputs.label", PAIRS),
        lambda: lib.unseen_transition("outputs.label", PAIRS[:1]),
    ),
    "value_jump": Case(lambda: lib.value_jump(SERIES, above=5), lambda: lib.value_jump(SERIES, above=6)),
    "value_spike": Case(lambda: lib.value_spike(SERIES, rows=8), lambda: lib.value_spike(SERIES, rows=9)),
}


def revisions() -> dict[str, str]:
    """Revision of every case."""
    return {name: case.make().revision for name, case in CASES.items()}
