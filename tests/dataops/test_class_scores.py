"""AUROC of many classes from counted scores is that of scikit-learn, however labels come and change."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.statistics.performance import ScoreCells, class_auroc
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.class_scores import BUCKETS, score_buckets, stored_scores
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import LabelRequest
from outrider.dataops.state.tables import table_of
from outrider.monitor.views.series.counts import SeriesCut
from outrider.monitor.views.series.performance import read_performance
from outrider.monitor.views.series.span import SeriesSpan
from outrider.monitor.worker.stages.measures import stored_class_scores
from tests.dataops.test_outcomes import START_US, query
from tests.table_rows import append

CLASSES = ("cat", "dog", "bird", "fish")


def drawn(rows: int, *, seed: int, sharp: float = 1.2) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of four classes and true classes; the fourth is rare."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(4, rows, p=[0.4, 0.3, 0.25, 0.05])
    logits = rng.normal(0, 1, (rows, 4)) + sharp * (truth[:, None] == np.arange(4))
    powers = np.exp(2 * logits)
    return powers / powers.sum(axis=1, keepdims=True), truth


def cells_of(probs: np.ndarray, truth: np.ndarray, weight: np.ndarray) -> ScoreCells:
    classes = probs.shape[1]
    each = np.repeat(weight, classes)
    return ScoreCells(
        np.tile(np.arange(classes), len(probs)), score_buckets(probs).ravel().astype(np.int64),
        (truth[:, None] == np.arange(classes)).ravel(), np.ones(len(each), dtype=np.int64), each, each**2,
        BUCKETS,
    )  # fmt: skip


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_area_is_that_of_scikit_learn_within_what_is_tied(average: str) -> None:
    for seed, sharp in ((1, 0.3), (2, 1.2), (3, 4.0)):
        probs, truth = drawn(4000, seed=seed, sharp=sharp)
        weight = np.random.default_rng(seed).choice([1.0, 3.0], 4000)
        true = (truth[:, None] == np.arange(4)).astype(int)
        exact = [roc_auc_score(true[:, k], probs[:, k], sample_weight=weight) for k in range(4)]
        part = np.bincount(truth, weights=weight) if average == "weighted" else np.ones(4)
        known = float(np.average(exact, weights=part))
        found = class_auroc(cells_of(probs, truth, weight), is_weighted=average == "weighted")
        assert found.value == pytest.approx(known, abs=0.004)
        assert found.low < known < found.high
        assert found.records == 4000


def test_intervals_hold_the_area_of_all_traffic() -> None:
    probs, truth = drawn(200_000, seed=9)
    whole = class_auroc(cells_of(probs, truth, np.ones(len(truth)))).value
    held = []
    for at in range(0, 60_000, 600):
        own = slice(at, at + 600)
        found = class_auroc(cells_of(probs[own], truth[own], np.ones(600)))
        held.append(found.low <= whole <= found.high)
    assert np.mean(held) >= 0.94


def test_one_class_or_no_label_gives_no_figure() -> None:
    probs, _ = drawn(30, seed=1)
    assert np.isnan(class_auroc(cells_of(probs, np.zeros(30, dtype=int), np.ones(30))).value)
    assert np.isnan(class_auroc(cells_of(probs[:0], np.zeros(0, dtype=int), np.ones(0))).value)


def test_scores_that_are_no_probabilities_are_not_stored() -> None:
    probs = np.array([[0.2, 0.3, 0.5], [0.2, np.nan, 0.5], [0.2, 1.5, 0.1]])
    assert [one is None for one in stored_scores(probs)] == [False, True, True]
    assert stored_scores(np.full((2, 2), 0.5)) == [None, None]
    assert stored_scores(np.full((1, 60), 0.5)) == [None]
    assert stored_scores(np.zeros(3)) == [None] * 3


def test_answers_score_all_classes_or_none() -> None:
    probs = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0000001]], dtype=np.float32)
    batch = Batch.from_columns({"outputs.probs": probs}, model="m")
    found = stored_class_scores(batch)
    assert found[0] == bytes(score_buckets(probs[0].astype(np.float64)).tolist())
    assert found[1] is not None
    assert stored_class_scores(Batch.from_columns({"outputs.label": [1, 2]}, model="m")) == [None, None]
    ragged = Batch.from_columns({"outputs.probs": [[0.1, 0.2, 0.7], [1.0]]}, model="m")
    assert stored_class_scores(ragged) == [None, None]


def _fill(engine: Engine, probs: np.ndarray, labels: list[str | None]) -> None:
    """Records in two blocks, and labels in blocks behind them."""
    scores = stored_scores(probs)
    said = probs.argmax(axis=1)
    for half in range(2):
        effects = Effects("m", "champion", half + 1, received={half + 1: START_US + half}, version="9")
        effects.classes = CLASSES
        for at in range(half, len(probs), 2):
            row = ("m", f"r{at}", half + 1, at, START_US, 0, "1", None, "a", CLASSES[said[at]], 1.0, False)
            append(effects.records, (*row, 5_000, None, scores[at]))
        with write(engine) as connection:
            ledger.apply(connection, effects)
    _label(engine, {f"r{at}": label for at, label in enumerate(labels)}, seq=3)


def _label(engine: Engine, labels: dict[str, str | None], *, seq: int) -> None:
    effects = Effects("m", "champion", seq, received={seq: START_US + seq}, version="9")
    effects.classes = CLASSES
    for row, (record, value) in enumerate(labels.items()):
        body = "{}" if value is None else '{"label": 0}'
        append(effects.labels, (seq, row, "m", record, "human", value, body, 0, START_US, None))
    with write(engine) as connection:
        ledger.apply(connection, effects)


def _auroc(engine: Engine) -> dict[str, tuple[float, str]]:
    span = SeriesSpan(START_US, START_US + MINUTE_US, MINUTE_US)
    with engine.connect() as connection:
        found = read_performance(connection, SeriesCut("m"), span)
    return {
        row.key.statistic: (row.whole.value, row.method)
        for row in found.figures
        if row.key.statistic.startswith("auroc")
    }


def test_labels_that_come_change_and_go_leave_the_area_of_those_that_stand(engine: Engine) -> None:
    probs, truth = drawn(400, seed=4)
    wrong: list[str | None] = [CLASSES[(one + at % 3) % 4] for at, one in enumerate(truth.tolist())]
    _fill(engine, probs, wrong)
    _label(engine, {f"r{at}": CLASSES[one] for at, one in enumerate(truth.tolist())}, seq=4)
    _label(engine, {f"r{at}": None for at in range(100)}, seq=5)
    _label(engine, {f"r{at}": "neither of them" for at in range(100, 110)}, seq=6)
    left = slice(110, None)
    known = roc_auc_score(truth[left], probs[left], multi_class="ovr", average="macro")
    weighted = roc_auc_score(truth[left], probs[left], multi_class="ovr", average="weighted")
    found = _auroc(engine)
    assert found["auroc"][0] == pytest.approx(known, abs=0.01)
    assert found["auroc_weighted"][0] == pytest.approx(weighted, abs=0.01)
    counts = query(engine, "SELECT sum(records) n, min(records) low FROM score_count")
    assert (counts[0].n, counts[0].low > 0) == (4 * 290, True)


def test_a_range_with_two_of_many_classes_has_one_figure(engine: Engine) -> None:
    probs, truth = drawn(2000, seed=8, sharp=3.0)
    own = np.flatnonzero((truth < 2) & (probs.argmax(axis=1) < 2))[:300]
    _fill(engine, probs[own], [CLASSES[one] for one in truth[own].tolist()])
    span = SeriesSpan(START_US, START_US + MINUTE_US, MINUTE_US)
    with engine.connect() as connection:
        found = read_performance(connection, SeriesCut("m"), span).figures
    assert len({row.key for row in found}) == len(found)
    assert {"auroc", "auroc_weighted"} <= {row.key.statistic for row in found}


def test_chosen_labels_are_weighed_back(engine: Engine) -> None:
    probs, truth = drawn(600, seed=5)
    _fill(engine, probs, [CLASSES[one] for one in truth.tolist()])
    rows = [
        {"model": "m", "record_id": f"r{at}", "policy": "bal", "reason": "x", "round": 1, "created_us": 1,
         "position": at, "probability": 0.9 if at % 3 else 0.3, "population": 600, "is_audit": False,
         "floor": 1.0}
        for at in range(300)
    ]  # fmt: skip
    with write(engine) as connection:
        connection.execute(table_of(LabelRequest).insert(), rows)
    value, method = _auroc(engine)["auroc"]
    assert method == "weighted"
    weight = np.array([1 / (0.9 if at % 3 else 0.3) for at in range(300)])
    own = truth[:300]
    areas = [roc_auc_score(own == k, probs[:300, k], sample_weight=weight) for k in range(4)]
    assert value == pytest.approx(np.mean(areas), abs=0.03)
