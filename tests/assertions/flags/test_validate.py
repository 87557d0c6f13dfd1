"""The same assertions on human labels find wrong ones among real labels."""

import numpy as np
import pandas as pd

from outrider.assertions import Batch, Checker, assertion
from outrider.assertions.flags.validate import label_view, suspicious
from outrider.assertions.library import contradicts_neighbours, label_differs, low_score
from tests.requirements import require_data


def test_labels_take_the_place_of_outputs_and_the_model_stands_beside() -> None:
    records = [
        {"id": "a", "outputs": {"label": "cat", "score": 0.9}, "label": {"label": "dog"}},
        {"id": "b", "outputs": {"label": "cat", "score": 0.9}},
        {"id": "c", "outputs": {"label": "cat", "score": 0.9}, "label": {"label": "cat"}},
    ]
    view = label_view(Batch.from_records(records, model="m"))
    assert view.keys.tolist() == ["a", "c"]
    assert not view.has("outputs.score")
    assert label_differs("model").severities(view).tolist() == [1.0, 0.0]
    assert low_score().severities(view).tolist() == [0.0, 0.0]


def test_a_batch_without_labels_or_outputs_has_an_empty_or_plain_view() -> None:
    assert label_view(Batch.from_columns({"inputs.x": [1.0]}, model="m")).rows == 0
    imported = Batch.from_columns({"inputs.x": [1.0], "label.label": [3]}, model="m")
    assert label_view(imported).column("outputs.label").tolist() == [3]
    assert label_view(imported).answer_slots == []


def test_labels_that_people_reject_are_ranked_first_in_cifar10h() -> None:
    """Given label of 6,000 images against the majority of 50 people each, who see only what we do not."""
    frame = pd.read_parquet(require_data("cifar10h_label_trust") / "labels_crowd_probs.parquet")
    probs = frame[[f"model_p_{one}" for one in range(10)]].to_numpy(dtype=np.float64)
    wrong = frame.given_label != frame[[f"crowd_{one}" for one in range(10)]].to_numpy().argmax(axis=1)
    batch = Batch.from_columns(
        {
            "outputs.label": probs.argmax(axis=1),
            "outputs.probs": probs,
            "label.label": frame.given_label.to_numpy().astype(np.int64),
        },
        model="cifar",
    )

    @assertion
    def improbable(labels: Batch) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        said = labels.answers("model")
        assert said is not None
        given = said.tensor("outputs.probs")[np.arange(labels.rows), labels.column("outputs.label")]
        return np.where(given < 0.05, 1 - given, 0.0)

    found = suspicious(Checker([label_differs("model"), improbable]).check(label_view(batch)))
    base = wrong.mean()
    worst = wrong.to_numpy()[found.row[:100]]
    assert base < 0.01
    assert worst.mean() > 5 * base
    assert wrong.to_numpy()[found.row].mean() > 4 * base


def test_labels_swapped_in_real_digits_are_found_by_their_neighbours() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, truth = digits.data / 16, digits.target
    rng = np.random.default_rng(0)
    hit = rng.random(len(truth)) < 0.03
    given = np.where(hit, (truth + rng.integers(1, 10, len(truth))) % 10, truth)
    columns = {"inputs.image": images, "label.label": given, "label.score": np.ones(len(truth))}
    view = label_view(Batch.from_columns(columns, model="digits"))
    # The wrong labels are in the reference too: each image is its own nearest neighbour.
    judge = contradicts_neighbours(images, given, classes=tuple(range(10)), column="inputs.image", share=0.2)
    found = suspicious(Checker([judge]).check(view))
    flagged = np.zeros(len(truth), dtype=np.bool_)
    flagged[found.row] = True
    assert flagged[hit].mean() >= 0.95
    assert hit[flagged].mean() >= 0.8
