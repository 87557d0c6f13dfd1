"""How rows are put together, how many of them, and how what raises is found."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from outrider.dataops.model_kinds.torch_models import read_logits
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.engine.batching import EDGES, AskPiece, widths_of
from outrider.monitor.engine.collect import Collect
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.executor import Alone
from outrider.monitor.engine.feeds import TensorFeed
from outrider.monitor.engine.lane import EncodedAsk, Lane
from outrider.monitor.engine.pace import MAX_ROWS, measure
from outrider.monitor.engine.poison import around_poison, checked, joined

from .exact import Sums, records

NAME = ("m", "1")


def test_a_bucket_pads_little_and_nothing_is_wider_than_its_bucket() -> None:
    lengths = np.arange(1, 5000)
    widths = widths_of(lengths)
    assert (widths >= lengths).all()
    assert ((widths - lengths) / lengths)[64:].max() <= 0.11
    assert (np.diff(EDGES) > 0).all()


def test_the_fewest_rows_at_nearly_the_least_seconds_per_row_are_best() -> None:
    pace = measure(lambda rows: 0.001 + 0.0001 * rows, around_s=0)
    assert pace is not None
    assert 256 <= pace.best <= 1024
    flat = measure(lambda rows: 0.01 * rows, around_s=0)
    assert flat is not None
    assert flat.best == 1
    assert flat.sizes[-1] == 8  # more was of no use three times
    slow = measure(lambda rows: 0.05 * rows**0.9, around_s=0)
    assert slow is not None
    assert slow.sizes[-1] == 8  # 0.32 s at once is too long, though it helps


def test_more_rows_are_tried_while_they_help() -> None:
    device = measure(lambda rows: 0.001 if rows <= 512 else 0.001 * rows / 512, around_s=0)
    assert device is not None
    assert device.best == 512
    assert device.sizes[-1] <= MAX_ROWS


def test_a_measurement_ends_where_memory_does() -> None:
    def timed(rows: int) -> float:
        if rows > 4:
            raise MemoryError("too many")
        return 0.001

    pace = measure(timed)
    assert pace is not None
    assert (pace.best, pace.sizes.tolist()) == (4, [1, 2, 4])
    assert measure(lambda rows: timed(rows + 4)) is None


def test_seconds_of_a_pass_grow_with_rows_and_width() -> None:
    pace = measure(lambda rows: 0.001 * rows, width=64, around_s=0)
    assert pace is not None
    assert pace.seconds_of(24, 64) == pytest.approx(0.024, rel=0.01)
    assert pace.seconds_of(24, 32) == pytest.approx(0.012, rel=0.01)
    assert pace.seconds_of(2 * int(pace.sizes[-1]), 64) == pytest.approx(0.016, rel=0.01)


class Costing(TensorFeed):
    """Passes that take the seconds that a rule says."""

    def __init__(self, model: Sums, cost: Callable[[int, int], float]) -> None:
        super().__init__(Alone(NAME, model), CpuDevice())
        self._cost = cost

    def timed(self, piece: AskPiece, rows: int, /) -> float:
        return self._cost(rows, piece.key[1])


@pytest.mark.parametrize(
    ("cost", "passes"),
    [
        (lambda _rows, _width: 0.01, [(7, 60)]),
        (lambda rows, width: 2e-3 + 5e-5 * rows * width, [(3, 60), (4, 8)]),
    ],
)
def test_shorter_rows_fill_up_a_pass_only_where_that_is_cheaper(
    cost: Callable[[int, int], float], passes: list[tuple[int, int]]
) -> None:
    model = Sums(is_ragged=True)
    feed = Costing(model, cost)
    lane = Lane(feed)
    rows = records([[1] * 60 + [0] * 4] * 3 + [[1] * 8 + [0] * 56] * 4)
    collect = Collect(1, NAME, "1", rows.rows, feed.reader)
    lane.put(EncodedAsk(rows, (collect,), (0, 1)))
    lane.encode_ahead()
    for key in [key for key, _, _ in feed.encode([rows], NAME)[0].ranges]:
        lane.measure(key)
    while not collect.is_over:
        running = feed.run(lane.take(lane.choose()))
        lane.landed(running.land(), running.pieces)
    assert model.passes == passes


@pytest.mark.parametrize("bad", [set(), {0}, {7}, {3, 4}, set(range(0, 100, 9)), set(range(40, 80))])
def test_exactly_the_rows_that_raise_alone_are_poisoned(bad: set[int]) -> None:
    def call(start: int, stop: int) -> range:
        if bad & set(range(start, stop)):
            raise ValueError("bad")
        return range(start, stop)

    parts, poison = around_poison(call, 100)
    assert {record.row for record in poison} == bad
    assert sorted(itertools.chain(*(part for _, _, part in parts))) == sorted(set(range(100)) - bad)


def test_a_model_that_always_raises_is_given_up_far_from_the_first_record_with_its_first_reason() -> None:
    calls: list[tuple[int, int]] = []

    def call(start: int, stop: int) -> None:
        calls.append((start, stop))
        raise ValueError(f"call {len(calls)}")

    parts, poison = around_poison(call, 1024)
    assert not parts
    assert len(calls) < 160
    rows = [record.row for record in poison]
    assert max(rows) - min(rows) > 512
    assert {record.detail for record in poison} == {"ValueError: call 1"}


def test_answers_of_plain_types_need_no_trial() -> None:
    outputs: Outputs = {"a": np.zeros(3, np.float32), "b": np.zeros((3, 2)), "c": np.zeros(3, bool)}
    assert checked(outputs, 3).keys() == outputs.keys()
    for bad in (np.zeros((3, 0)), np.zeros(3, complex), np.zeros(2)):
        with pytest.raises(Exception, match=r".+"):
            checked({"a": bad}, 3)


def test_parts_are_joined_in_row_order() -> None:
    parts = [(4, 6, {"x": np.array([4, 5])}), (0, 3, {"x": np.array([0, 1, 2])})]
    assert joined(parts, 6)["x"][[0, 1, 2, 4, 5]].tolist() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("classes", [1, 2, 10, 64, 65, 300])
def test_classes_are_read_alike_however_many_there_are(classes: int) -> None:
    logits = torch.randn(50, classes, generator=torch.Generator().manual_seed(0))
    found = read_logits(logits, np.arange(classes))
    probs = torch.softmax(logits, dim=1)
    assert found["probs"].flags.c_contiguous
    np.testing.assert_allclose(found["probs"], probs.numpy(), rtol=1e-5, atol=1e-7)
    assert found["label"].tolist() == probs.argmax(1).tolist()
    top = np.sort(probs.numpy(), axis=1)
    np.testing.assert_allclose(found["score"], top[:, -1], rtol=1e-5)
    second = top[:, -2] if classes > 1 else 0.0
    np.testing.assert_allclose(found["margin"], top[:, -1] - second, rtol=1e-4, atol=1e-6)
