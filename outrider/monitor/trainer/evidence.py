"""Candidate's evidence for the gate: suites, held-out and fresh rows, traffic."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions import Batch, Predictor
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.flags.quality import Asked as AskedLabel
from outrider.assertions.statistics.estimation import Estimate, estimate_share
from outrider.assertions.statistics.loss_bounds import Excess, most_shown
from outrider.behavioral_tests import Example, Outcome
from outrider.behavioral_tests.case_values import image_of
from outrider.behavioral_tests.comparison import Compared, Comparison
from outrider.behavioral_tests.example_text import example_lines
from outrider.dataops.flags.shadow_flags import common_records
from outrider.dataops.improvement.gate import (
    FailureRate,
    PairedEvidence,
    ShadowEvidence,
    SliceEvidence,
    SuiteEvidence,
    error_of,
)
from outrider.dataops.improvement.live_evidence import live_evidence

from .scoring import AnswerScoring, LossFault

EXAMPLES = 3
MOST_SLICES = 20
MOST_CLASSES, LEAST_OF_CLASS = 200, 5
"""Values of a label that are classes: at most so many, of so many rows on average."""
EXAMPLE_LETTERS = 400
SPELLED_OUT = 4


def suite_evidence(comparison: Comparison) -> tuple[list[SuiteEvidence], list[str]]:
    """Behavioral evidence on both models, without tests that had no case; tests run on neither are
    named as missing."""
    found, missing = [], []
    for row in comparison.rows:
        old, new = row.champion, row.challenger
        if old is None or new is None:
            continue
        if old.error and new.error and not (old.is_unanswered or new.is_unanswered):
            where = f"{row.capability}: {row.test} ({row.kind}, suite {row.suite})"
            missing.append(f"{where} could be run on neither: {new.error}")
        elif old.cases or new.cases or old.error or new.error:
            found.append(_suite_evidence(row, old, new))
    return found, missing


def _suite_evidence(row: Compared, old: Outcome, new: Outcome) -> SuiteEvidence:
    return SuiteEvidence(
        suite=row.suite,
        test=row.test,
        capability=row.capability,
        kind=row.kind,
        tolerance=new.tolerance,
        champion=_asked(old),
        candidate=_asked(new),
        only_champion_fails=row.only_champion_fails,
        only_candidate_fails=row.only_challenger_fails,
        p=row.p_adjusted,
        compared=row.verdict,
        note=row.reason,
        examples=_figures(old, new) if new.measures else _examples(old, new),
    )


def _examples(old: Outcome, new: Outcome) -> tuple[str, ...]:
    failed = set() if old.ran is None else set(old.ran.numbers[old.ran.failed].tolist())
    examples = sorted(new.examples, key=lambda each: each.case in failed)
    return tuple(example_text(example) for example in examples[:EXAMPLES])


def _figures(old: Outcome, new: Outcome) -> tuple[str, ...]:
    """Figures behind the verdict on a whole test, the gap first."""
    was = {(each.name, each.group): each for each in old.measures}
    shown = []
    for each in new.measures[::-1][:EXAMPLES]:
        text = f"{each.name} {each.group}: {each.value:.3f} ({each.low:.3f} to {each.high:.3f})"
        before = was.get((each.name, each.group))
        shown.append(text if before is None else f"{text}, {before.value:.3f} with the champion")
    return tuple(shown)


def _asked(outcome: Outcome) -> FailureRate:
    return FailureRate(
        outcome.cases, outcome.failures, outcome.low, outcome.high, outcome.error, outcome.confidence
    )


def example_text(example: Example) -> str:
    """Failing case in one line: input or change, answer before -> after; arrays as shape and range."""
    brief = replace(
        example,
        inputs=_brief(example.inputs),
        outputs=_brief(example.outputs),
        original_inputs=None if example.original_inputs is None else _brief(example.original_inputs),
        original_outputs=None if example.original_outputs is None else _brief(example.original_outputs),
    )
    text = " ⇒ ".join(line.strip() for line in example_lines(brief))
    return text if len(text) <= EXAMPLE_LETTERS else f"{text[: EXAMPLE_LETTERS - 1]}…"


def _brief(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _described(value) for name, value in values.items()}


def _described(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):  # texts, objects, or lists of several lengths
        return value
    if array.size <= SPELLED_OUT:
        return value
    kind = "tensor" if image_of(value) is None else "image"
    return {
        "tensor": f"{kind}{array.shape} in [{array.min():.3g}, {array.max():.3g}]",
        "shape": list(array.shape),
    }


def paired_evidence(
    name: str,
    batch: Batch,
    champion: Predictor,
    candidate: Predictor,
    *,
    scoring: AnswerScoring,
    weights: Mapping[str, AskedLabel] | None = None,
    tries: int = 1,
    slices: Sequence[str | None] = (),
    parts: int = 1,
    rare: float = 0.0,
    pause: Callable[[], None] = lambda: None,
) -> PairedEvidence:
    """Losses of both models on the labelled rows of a dataset.

    ``weights`` are of records chosen for labelling; ``tries`` counts the verdicts on any of the rows,
    ``parts`` the checks that share the error of the bounds; below share ``rare`` a class is judged by its
    own rows.
    """
    error = error_of(tries)
    nothing = Excess(0.0, -1.0, 1.0, batch.rows, batch.rows, error)
    found = PairedEvidence(name, "loss", 0.0, nothing, tries=tries)
    if not batch.rows:
        return found
    try:
        scores = scoring.of(batch, champion(batch), candidate(batch), pause=pause)
    except LossFault as fault:
        return replace(found, fault=str(fault))
    known, names, times = scores.known, batch.column("entity"), batch.column("ts")
    found = replace(found, loss=scores.title, left_out=int((~known).sum()))
    if lost := scores.unanswered:
        return replace(found, fault=f"the candidate's answer to {lost} rows is no number: {scores.title}")
    beyond = scores.excess(known, names, times, error)
    if parts > 1:
        beyond = replace(beyond, low=scores.excess(known, names, times, error / parts).low)

    def excess_in(rows: Mapping[str, NDArray[np.bool_]]) -> list[SliceEvidence]:
        """Excess in parts of the rows, which share one error."""
        return [
            SliceEvidence(
                name,
                scores.excess(at, names, times, error / len(rows)),
                most_shown(names[at], error / len(rows), times=times[at]),
            )
            for name, at in rows.items()
        ]

    found = replace(
        found,
        champion_loss=scores.champion_loss(known),
        excess=beyond,
        is_relative=not scores.is_bounded,
        slices=excess_in(_slices(slices, known)),
        classes=excess_in(_rare_classes(batch, scoring, known, rare)) if scores.loss == "error" else (),
    )
    if scores.loss != "error":
        return found
    both = scores.champion, scores.candidate
    shares = [_weighted_share(batch, losses == 0.0, weights or {}) for losses in both]
    return replace(found, champion_share=shares[0], candidate_share=shares[1])


def _slices(slices: Sequence[str | None], known: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    if not slices:
        return {}
    names = np.array(slices, dtype=object)
    sizes = Counter(name for name in names[known].tolist() if name is not None)
    return {name: known & (names == name) for name, _ in sizes.most_common(MOST_SLICES)}


def _rare_classes(
    batch: Batch, scoring: AnswerScoring, known: NDArray[np.bool_], rare: float
) -> dict[str, NDArray[np.bool_]]:
    """Rows of each rare class; none where labels are no classes."""
    labels = batch.arrow(f"label.{scoring.target}").filter(pa.array(known))
    if pa.types.is_nested(labels.type) or is_tensor(labels.type):
        return {}
    coded = labels.dictionary_encode()
    if not 2 <= len(coded.dictionary) <= min(MOST_CLASSES, len(labels) / LEAST_OF_CLASS):
        return {}
    codes = np.full(batch.rows, -1)
    codes[known] = np.asarray(coded.indices)
    rows = [codes == code for code in range(len(coded.dictionary))]
    named = zip(coded.dictionary.to_pylist(), rows, strict=True)
    return {f"{scoring.target}={name}": of for name, of in named if of.sum() < rare * len(labels)}


def _weighted_share(
    batch: Batch, correct: NDArray[np.bool_], weights: Mapping[str, AskedLabel]
) -> Estimate | None:
    ids = batch.column("id").tolist() if batch.rows and weights else []
    known = [(row, weights[record]) for row, record in enumerate(ids) if record in weights]
    if not any(weight.weight > 0 for _, weight in known):
        return None
    return estimate_share(
        correct[[row for row, _ in known]],
        [weight.weight for _, weight in known],
        certain=[weight.is_certain for _, weight in known],
    )


def shadow_evidence(connection: Connection, model: str, champion: str, candidate: str) -> ShadowEvidence:
    """Flags on both models' answers to common live records, without live tests and LLM judges, which
    ask the champion only."""
    return live_evidence(common_records(connection, model, champion, candidate))
