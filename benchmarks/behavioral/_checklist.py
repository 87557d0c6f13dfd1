"""What CheckList 0.0.11 does to run and summarise a suite: the peer of ``benchmarks.behavioral.suite``.

CheckList wants an environment of its own (``tests/behavioral_tests/checklist_files`` were made there), and
both sides are to run in one process. These are the steps of its hot path (``AbstractTest.run``,
``update_results_from_preds``, ``Expect.single``, ``pairwise``, ``wrap_slice``, ``aggregate``, ``summary``):
one Python call per example, one small array per case. Adapted from CheckList, which is under the

MIT License, Copyright (c) 2020 Marco Tulio Correia Ribeiro. Permission is hereby granted, free of charge,
to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights to use, copy, modify, merge,
publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions: The above copyright notice and this
permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS
PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
DEALINGS IN THE SOFTWARE.
"""
# ruff: noqa: ARG001, ARG005 - functions take what CheckList hands to them

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Predict = Callable[[Sequence[str]], tuple[Sequence[Any], Sequence[Any]]]
Judge = Callable[..., Any]


def with_optional(data: Any, preds: Any, confs: Any, labels: Any) -> Iterable[tuple[Any, ...]]:
    """One tuple per example, a label for all of them repeated."""
    if not isinstance(data, list):
        return [(data, preds, confs, labels)]
    repeated = labels if isinstance(labels, list) else itertools.repeat(labels)
    return zip(data, preds, confs, repeated, strict=False)  # labels may be without end


def single(judge: Judge) -> Judge:
    """Every example of a case alone."""

    def case(xs: Any, preds: Any, confs: Any, label: Any) -> NDArray[Any]:
        return np.array(
            [judge(x, p, c, label_) for x, p, c, label_ in with_optional(xs, preds, confs, label)]
        )

    return case


def pairwise(judge: Judge) -> Judge:
    """Every example of a case against the first."""

    def case(xs: Any, preds: Any, confs: Any, label: Any) -> NDArray[Any]:
        was, was_conf = preds[0], confs[0]
        return np.array([judge(was, p, was_conf, c) for _, p, c, _ in with_optional(xs, preds, confs, label)])

    return case


def eq(value: Any = None) -> Judge:
    """Prediction equals the label or a value."""

    def judge(x: Any, pred: Any, conf: Any, label: Any) -> Any:
        truth = value if value is not None else label
        violation = -(1 - conf[truth])
        return True if pred == truth else violation

    return judge


def label_or_not_negative(x: Any, pred: Any, conf: Any, label: Any) -> bool:
    """Prediction equals the label; one of neutral cases is only not negative."""
    return bool(pred != 0) if label == 1 else bool(pred == label)


def inv(tolerance: float) -> Judge:
    """Class unchanged, or its probability nearly."""

    def judge(was: Any, pred: Any, was_conf: Any, conf: Any) -> Any:
        if pred == was:
            return True
        gap = np.abs(conf[was] - was_conf[was])
        return True if gap <= tolerance else -gap

    return judge


def monotonic(increasing: bool, tolerance: float) -> Judge:
    """Probability of the original's class does not move the wrong way."""

    def judge(was: Any, pred: Any, was_conf: Any, conf: Any) -> Any:
        before, now = was_conf[was], conf[was]
        if (increasing and before <= tolerance) or (not increasing and before >= 1 - tolerance):
            return None
        if increasing:
            return True if now - before + tolerance >= 0 else now - before + tolerance
        return True if now - before - tolerance <= 0 else -(now - before - tolerance)

    return judge


def sentiment_shift(up: bool, tolerance: float) -> Judge:
    """More positive and less negative, or the other way round."""

    def judge(was: Any, pred: Any, was_conf: Any, conf: Any) -> bool:
        change = (was_conf[0] - conf[0]) + (conf[2] - was_conf[2])
        return bool(change + tolerance >= 0) if up else bool(change - tolerance <= 0)

    return judge


_OPERATORS = {"!=": operator.ne, "==": operator.eq, ">": operator.gt, "<": operator.lt}


class PeerTest:
    """One test of the converted suite, run as CheckList runs it."""

    def __init__(self, line: Mapping[str, Any]) -> None:
        self.name, self.kind = line["name"], line["type"]
        self.data = [case["inputs"] if self.kind != "MFT" else case["inputs"][0] for case in line["cases"]]
        self.labels = [case.get("label") for case in line["cases"]]
        self.ignore_first = line["aggregate"] == "all_except_first"
        self.judge = _judge(line["expectation"])
        self.slice = line["expectation"].get("slice")

    def run(self, predict: Predict) -> None:
        """Ask, sort the answers into cases, judge, aggregate."""
        if isinstance(self.data[0], list):
            pairs = [(number, x) for number, xs in enumerate(self.data) for x in xs]
            numbers, examples = map(list, zip(*pairs, strict=True))
        else:
            numbers, examples = list(range(len(self.data))), list(self.data)
        preds, confs = predict(examples)
        self._sort(numbers, preds, confs)
        self.results = [
            self.judge(xs, p, c, label)
            for xs, p, c, label in with_optional(self.data, self.preds, self.confs, self.labels)
        ]
        if self.slice is not None:
            self._narrow()
        self.passed = np.array([self._aggregated(result) for result in self.results])

    def _sort(self, numbers: Sequence[int], preds: Sequence[Any], confs: Sequence[Any]) -> None:
        if not isinstance(self.data[0], list):
            self.preds, self.confs = list(preds), list(confs)
            return
        self.preds, self.confs = [[] for _ in self.data], [[] for _ in self.data]
        for number, pred, conf in zip(numbers, preds, confs, strict=True):
            self.preds[number].append(pred)
            self.confs[number].append(conf)
        for number in range(len(self.data)):
            self.preds[number] = np.array(self.preds[number])
            self.confs[number] = np.array(self.confs[number])

    def _narrow(self) -> None:
        compare, value = _OPERATORS[self.slice["op"]], self.slice["value"]
        within = pairwise(lambda was, pred, was_conf, conf: compare(was, value))
        kept = [
            self._aggregated(within(xs, p, c, None))
            for xs, p, c in zip(self.data, self.preds, self.confs, strict=True)
        ]
        for number in np.flatnonzero(np.array(kept) != True):  # noqa: E712 - as CheckList does: None is not True
            self.results[number] = np.array([None] * len(self.results[number]))

    def _aggregated(self, results: NDArray[Any]) -> Any:
        left = [result for result in results if result is not None]
        if not left:
            return None
        values = np.array(left)
        return np.all((values[1:] if self.ignore_first else values) > 0)

    @property
    def fails(self) -> int:
        """Cases that failed."""
        return int(np.sum(self.passed == False))  # noqa: E712 - None is neither

    def summary(self, examples: int = 3) -> list[str]:
        """Counts, and some failed cases with their worst examples."""
        failed = np.where(self.passed == False)[0]  # noqa: E712 - as above
        filtered = len(np.where(self.passed == None)[0])  # noqa: E711 - as above
        lines = [self.name, f"Test cases:      {len(self.data)}"]
        if filtered:
            lines.append(f"After filtering: {len(self.data) - filtered}")
        if len(self.data) > filtered:
            lines.append(
                f"Fails (rate):    {len(failed)} ({100 * len(failed) / (len(self.data) - filtered):.1f}%)"
            )
        picked: Any = (
            np.random.choice(failed, min(len(failed), examples), replace=False) if len(failed) else []
        )
        for number in picked:
            shown = list(
                with_optional(self.data[number], self.preds[number], self.confs[number], self.labels[number])
            )
            order = [at for at in np.argsort(self.results[number]) if self.results[number][at] <= 0]
            for x, _, conf, _ in [shown[at] for at in order[:examples]]:
                lines.append(f"{' '.join(f'{value:.1f}' for value in conf)} {x}")
            lines.append("----")
        return lines


def _judge(expectation: Mapping[str, Any]) -> Judge:
    params = expectation["params"]
    tolerance = params.get("tolerance", 0.0)
    match expectation["kind"]:
        case "eq":
            return single(eq(None if params["value"] == "label" else params["value"]))
        case "not_equal":
            return single(lambda x, pred, conf, label: bool(pred != params["value"]))
        case "label_or_not_negative":
            return single(label_or_not_negative)
        case "inv":
            return pairwise(inv(tolerance))
        case "monotonic":
            return pairwise(monotonic(params["increasing"], tolerance))
        case "sentiment_shift":
            return pairwise(sentiment_shift(params["direction"] == "up", tolerance))
    raise ValueError(f"unknown expectation {expectation['kind']!r}")
