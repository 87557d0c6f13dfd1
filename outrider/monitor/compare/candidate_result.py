"""Running comparison of one candidate with production, and its verdict."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.comparison import PairedAnswers, StreamComparison, one_of_each, taken_back
from outrider.assertions.comparison.agreement import EMBEDDING, EVERYTHING, PROPERTIES, Measure
from outrider.assertions.comparison.differences import (
    VECTORS,
    Ruler,
    answer_texts,
    differ,
    measures_of,
    shared_measures,
    text_column_of,
)
from outrider.assertions.comparison.embedding_reach import EmbeddingReach
from outrider.assertions.comparison.energy_witness import EnergyVerdict, EnergyWitness, pair_energies
from outrider.assertions.comparison.items import hashed_bags
from outrider.assertions.comparison.judged import JudgedVerdict
from outrider.assertions.comparison.looks import Look, thin
from outrider.assertions.comparison.paired_outcomes import DirectedOutcomes, OutcomeVerdict
from outrider.assertions.comparison.slice_ranking import SliceDifference, rank_slices
from outrider.assertions.comparison.text_properties import TOOL_CALLS, with_text_properties
from outrider.assertions.comparison.verdict import (
    MOST_SLICES,
    CandidateVerdict,
    MeasureVerdict,
    confidence_in,
    percent,
    verdict_of,
)
from outrider.assertions.comparison.verdict_sentence import details_sentence, share_text, verdict_sentence
from outrider.errors import ConfigError

from .answers import Answers, NumberKind
from .judge import is_drawn
from .labelled import Conclusion, PairLabels, Right
from .pair_texts import few_digits
from .plan import ComparePlan
from .questions import REQUEST
from .sides import Side

KINDS = ("no answer", "no valid JSON")
"""Failures that a verdict counts: no answer to any question, and no valid JSON where the question asks for
JSON."""
EXAMPLES = 40
"""Size of the random sample of records with differing answers."""
_PREFERRED = ("label", "text", "prediction")


class CandidateResult:
    """Running comparison of one candidate; the error probability is split among ``candidates``."""

    def __init__(
        self, name: str, plan: ComparePlan, candidates: int, reach: EmbeddingReach | None = None
    ) -> None:
        self.name = name
        self.side = Side(name)
        self._plan = plan
        self._candidates = candidates
        self._reach = reach
        self._random = np.random.default_rng(plan.seed)
        self._ruler: Ruler | None = None
        self.comparison = StreamComparison()
        self.outcomes = DirectedOutcomes()
        self.verdict: CandidateVerdict = verdict_of(self.comparison, margin=plan.margin)
        """Verdict on the questions that both sides answered, as of the last :meth:`settle`."""
        self.unlabelled = self.conclusion = Conclusion("undecided", f"{name}: nothing was compared")
        """Verdict with labels (``conclusion``) and without them."""
        self._looks: list[tuple[int, Mapping[Measure, MeasureVerdict]]] = []
        self.examples: list[dict[str, Any]] = []
        self._energies: dict[str, float] = {}
        """Energy distance between the two answers of an example, less that within each side, by
        question id."""
        self._differing = 0
        self._shown: set[str] = set()
        """Conversations that already gave a differing pair; each gives at most one."""
        self._forms = "", ""
        self._numbers: dict[str, NumberKind] = {}
        """Outputs that are integers on one side and floats on the other."""
        self._is_answered = False
        """True once production has answered a question."""
        self._both_cached = 0
        self.borrowed = 0
        """Answers with the same bytes and response id as an answer of production."""
        self.is_silent = False
        """True once a candidate with a final verdict stopped answering; it is sent no more questions."""
        self.labels: dict[str, Right] = {}
        """Side with the right answer in a differing pair, by question id."""
        self.judged: dict[str, float] = {}
        """Preference of the LLM judge in a differing pair, -1 (production) to 1 (candidate), by
        question id."""
        self.drawn: list[dict[str, Any]] = []
        """Judged pairs selected for human labels."""
        self._unjudged: list[dict[str, Any]] = []
        self._witness = EnergyWitness(np.random.default_rng([plan.seed, 1]))

    def add(
        self,
        questions: Batch,
        production: Answers,
        candidate: Answers,
        again_rows: NDArray[np.intp],
        production_again: Answers | None,
        candidate_again: Answers | None,
    ) -> None:
        """Compare a batch of answers; ``again_rows`` are the questions that both sides were asked twice."""
        self._numbers |= number_kinds(
            production.outputs, candidate.outputs, self._numbers, self.comparison.measures
        )
        production, candidate = (each.as_kinds(self._numbers) for each in (production, candidate))
        if production_again is not None and candidate_again is not None:
            production_again = production_again.as_kinds(self._numbers)
            candidate_again = candidate_again.as_kinds(self._numbers)
        candidate = self._read(production, candidate)
        self.side.add(candidate)
        if candidate_again is not None:
            self.side.add(candidate_again)
        entities = _conversations(questions)
        self._is_answered |= bool(production.is_answered.any())
        sent = np.flatnonzero(production.is_asked & candidate.is_asked)
        self._count(
            "no answer",
            questions.take(sent),
            [entities[row] for row in sent.tolist()] if entities else (),
            ~production.is_answered[sent],
            ~candidate.is_answered[sent],
        )
        both = np.flatnonzero(production.is_answered & candidate.is_answered)
        if not len(both):
            return
        slices = [slice_names(questions, column) for column in self._plan.slices]
        if slices:
            both = both[np.argsort(slices[0][both].astype(np.str_), kind="stable")]
        one, two = with_calls(production.take(both).outputs, candidate.take(both).outputs)
        ruler = self._ruler = self._ruler or ruler_of(one, two, self._plan, self._reach)
        self._forms = form_of(one), form_of(two)
        asked, again, other = _twice(both, again_rows, production_again, candidate_again)
        if again is not None and other is not None:
            again, other = with_calls(again, other)
        self._both_cached += int((production.is_cached & candidate.is_cached)[both].sum())
        pair = PairedAnswers(
            with_text_properties(one, ruler),
            with_text_properties(two, ruler),
            np.ones(len(both)),
            slices[0][both].tolist() if slices else [""] * len(both),
            asked,
            None if again is None else with_text_properties(again, ruler),
            None if other is None else with_text_properties(other, ruler),
            [each[both].tolist() for each in slices[1:]],
            [entities[row] for row in both.tolist()] if entities else (),
        )
        self._witness_texts(pair, ruler)
        self.comparison += StreamComparison.of(
            pair,
            ruler,
            slices=self.comparison.slices,
            entities=self.comparison.entities,
            classes=self.comparison.classes,
            most_slices=MOST_SLICES,
        )
        self._count_json(questions, both, pair)
        self._keep_examples(questions, both, pair, ruler)

    def _read(self, production: Answers, candidate: Answers) -> Answers:
        """Mark the candidate's answers unreadable if their form changed during the comparison."""
        first = next((each for each in self.comparison.measures if each != EMBEDDING), None)
        if self._ruler is None or first is None or first in PROPERTIES:
            return candidate
        if first not in measures_of(production.outputs, self._ruler) or not candidate.is_answered.any():
            return candidate
        if first in shared_measures(production.outputs, candidate.outputs, self._ruler):
            return candidate
        why = f"answers of another form than before: {form_of(candidate.outputs)}"
        return candidate.unreadable(why)

    def _count(
        self, kind: str, questions: Batch, entities: Sequence[str], production: Any, candidate: Any
    ) -> None:
        self.outcomes += DirectedOutcomes.of(
            kind, production, candidate, entities=entities, keys=questions.keys, counted=self.outcomes
        )

    def _witness_texts(self, pair: PairedAnswers, ruler: Ruler) -> None:
        """Update the test of whole texts with one pair per conversation."""
        if not self._are_texts(ruler, pair.champion, pair.challenger):
            return
        rows = np.arange(pair.champion.rows, dtype=np.intp)
        if len(pair.entities):
            rows, _ = one_of_each(pair.entities, pair.champion.keys, self.comparison.entities)
        one, two = (self._vectors(each.take(rows), ruler) for each in (pair.champion, pair.challenger))
        self._witness.update(one, two)

    def _are_texts(self, ruler: Ruler, *answers: Batch | None) -> bool:
        return all(
            each is not None
            and text_column_of(each, ruler) != ""
            and (self._reach is None or each.has(VECTORS))
            for each in answers
        )

    def _vectors(self, answer: Batch, ruler: Ruler) -> NDArray[np.float64]:
        """Embeddings of texts; without an embedder, hashed bags of their words."""
        if self._reach is not None:
            return np.asarray(answer.tensor(VECTORS, null=np.nan), dtype=np.float64)
        texts = answer.arrow(text_column_of(answer, ruler)).to_pylist()
        return hashed_bags([text or "" for text in texts])

    def energy_verdict(self) -> EnergyVerdict | None:
        if not self._has_texts:
            return None
        respects = len(self.verdict.measures) + 1
        return self._witness.verdict(confidence_in(respects, candidates=self._candidates))

    @property
    def _has_texts(self) -> bool:
        return self._ruler is not None and self._ruler.is_text

    def _count_json(self, questions: Batch, both: NDArray[np.intp], pair: PairedAnswers) -> None:
        """Count invalid JSON in answers to questions with a JSON ``response_format``."""
        if not (
            questions.has(REQUEST)
            and pair.champion.has("outputs.text")
            and pair.challenger.has("outputs.text")
        ):
            return
        asks = [
            "response_format" in body and _asks_for_json(body)
            for body in questions.arrow(REQUEST).take(pa.array(both)).to_pylist()
        ]
        rows = np.flatnonzero(asks)
        if not len(rows):
            return
        one, two = (_no_json(side.take(rows)) for side in (pair.champion, pair.challenger))
        entities = [pair.entities[row] for row in rows.tolist()] if len(pair.entities) else []
        self._count("no valid JSON", questions.take(both[rows]), entities, one, two)

    def label(self, question: str, right: Right) -> bool:
        if not any(pair["id"] == question for pair in self.to_label) and question not in self.labels:
            return False
        self.labels[question] = right
        return True

    @property
    def noise(self) -> float:
        """Highest share of answers of either side that change when asked again, by measure of the verdict."""
        tallies = [self.comparison.tallies[measure, EVERYTHING] for measure in self.verdict.measures]
        return max((rate.rate for t in tallies for rate in (t.noise, t.challenger_noise)), default=0.0)

    @property
    def to_label(self) -> list[dict[str, Any]]:
        """Pairs for human labels: selected judged pairs, or the examples if there is no judge."""
        return self.drawn if self._plan.has_judge else self.examples

    def unjudged(self) -> list[dict[str, Any]]:
        """Differing pairs since the last call, in random order."""
        found, self._unjudged = self._unjudged, []
        self._random.shuffle(found)  # a budget that ends among them takes no slice before another
        return found

    def take_judgements(self, pairs: Sequence[dict[str, Any]], values: Sequence[float | None]) -> None:
        """Store the judge's preferences, and select pairs for human labels."""
        for pair, value in zip(pairs, values, strict=True):
            if value is not None:
                self.judged[pair["id"]] = value
                if is_drawn(pair["id"], self._plan.seed):
                    self.drawn.append(pair)

    @property
    def rows(self) -> int:
        return max(
            (t.differs.asked for (_, name), t in self.comparison.tallies.items() if not name), default=0
        )

    @property
    def _differs(self) -> bool:
        tallies = self.comparison.tallies
        return any(tallies[measure, EVERYTHING].differs.rate > 0.0 for measure in self.verdict.measures)

    @property
    def is_decided(self) -> bool:
        return self.conclusion.word != "undecided"

    def settle(self) -> None:
        self.verdict = verdict_of(
            self.comparison,
            margin=self._plan.margin,
            agree=self._plan.agree,
            candidates=self._candidates,
            further_tests=int(self._has_texts),
            hidden=0.0 if self._reach is None else self._reach.hidden,
        )
        outcomes = self.outcome_verdicts()
        self.unlabelled = self._by_outcomes(outcomes) or self._bounded(self._by_answers(), outcomes)
        self.conclusion = self.pair_labels.conclusion(self.unlabelled, self.name, self._candidates)
        if not self._looks or self._looks[-1][0] < self.rows:
            self._looks.append((self.rows, self.verdict.measures))
            thin(self._looks)

    @property
    def looks(self) -> list[Look]:
        measure = self.verdict.decided_by
        seen = [
            (rows, each[measure]) for rows, each in self._looks if measure is not None and measure in each
        ]
        return [Look(rows, found.value, found.low, found.high) for rows, found in seen]

    @property
    def pair_labels(self) -> PairLabels:
        return PairLabels(self.labels, self.judged if self._plan.has_judge else None, self._plan.seed)

    def judge_verdict(self) -> JudgedVerdict | None:
        return self.pair_labels.judge_verdict(self._candidates)

    def outcome_verdicts(self) -> Mapping[str, OutcomeVerdict]:
        return self.outcomes.verdicts(kinds=len(KINDS), margin=self._plan.margin, candidates=self._candidates)

    def slices(self) -> Sequence[SliceDifference]:
        return rank_slices(self.comparison, candidates=self._candidates, agree=self._plan.agree)

    def _by_outcomes(self, outcomes: Mapping[str, OutcomeVerdict]) -> Conclusion | None:
        """Verdict from failures, if one side is proven to have more of them, beyond the margin."""
        margin, name = self._plan.margin, self.name
        if self._is_answered and self.side.is_refused:
            return Conclusion("undecided", f"{name}: undecided: it {self.side.refusal}")
        for kind, found in outcomes.items():
            if found.word == "worse":
                sentence = f"{name} is worse: {_more_failures(kind, found)}"
                often = self.side.most_often if kind == KINDS[0] else ""
                return Conclusion("worse", f"{sentence}; most often: {often}" if often else sentence)
        if outcomes and not self._is_answered:
            return Conclusion("undecided", f"{name}: undecided: production answered nothing")
        fewer = [kind for kind, found in outcomes.items() if found.word == "better"]
        if fewer and all(found.high <= margin for found in outcomes.values()):
            return Conclusion("better", f"{name} is better: {_more_failures(fewer[0], outcomes[fewer[0]])}")
        return None

    def _bounded(self, answers: Conclusion, outcomes: Mapping[str, OutcomeVerdict]) -> Conclusion:
        """Weaken a verdict on the answers where failures of the candidate are not ruled out."""
        margin, name = percent(self._plan.margin), self.name
        if answers.word not in ("same", "close"):
            return answers
        open_kinds = {
            kind: found for kind, found in outcomes.items() if found.word in ("undecided", "better")
        }
        if open_kinds:
            # The one that is farthest from its end says why.
            by = max(open_kinds, key=lambda kind: math.inf if (n := open_kinds[kind].more) is None else n)
            left = open_kinds[by].more
            more = f"about {left:,} more records; " if left else ""
            failures = _more_failures(by, open_kinds[by])
            sentence = (
                f"{more}what both answer is {answers.word}, but {failures}: up to {margin} is not proven"
            )
            return Conclusion("undecided", f"{name}: undecided: {sentence}")
        for kind, found in outcomes.items():
            if found.word == "close" and answers.word == "same":
                failures = _more_failures(kind, found)
                sentence = f"what both answer is the same; {failures}, below the margin of {margin}"
                answers = Conclusion("close", f"{name} is close to production: {sentence}")
        return answers

    def _by_answers(self) -> Conclusion:
        verdict, name, margin = self.verdict, self.name, self._plan.margin
        if verdict.decided_by is None:
            one, two = self._forms
            forms = f": production answers {one}, {name} {two}" if one or two else ""
            hint = "; let both answer one output of one kind" if one and two else ""
            return Conclusion("undecided", f"{name}: undecided: {verdict.why}{forms}{hint}")
        if 2 * max(self._both_cached, self.borrowed) >= self.rows and not self._differs:
            sentence = "a cache seems to answer for both; have it pass by requests with x-outrider-shadow"
            return Conclusion("undecided", f"{name}: undecided: {sentence}")
        found, word = verdict.measures[verdict.decided_by], verdict.word
        energy = self.energy_verdict()
        is_apart = energy is not None and energy.is_proven
        agree = self._plan.agree
        if is_apart and word == "same" and (not agree or EMBEDDING in agree):
            word = "close"
        sentence = verdict_sentence(name, "production", found, verdict.decided_by, word, margin)
        sentence += details_sentence(verdict)
        if energy is not None and is_apart:
            sentence += f"; as a whole its texts are others (energy distance {energy.distance:.2g})"
        if word == "different":
            sentence += "; nobody has said which is better"
            sentence += f": label {len(self.to_label)} pairs" if self.to_label else ""
        return Conclusion(word, sentence)

    def _keep_examples(
        self, questions: Batch, both: NDArray[np.intp], pair: PairedAnswers, ruler: Ruler
    ) -> None:
        """Add to the random sample of records whose answers differ, except where a system
        contradicts itself."""
        measures = shared_measures(pair.champion, pair.challenger, ruler)
        if not measures or measures[0] == "rank":
            return
        apart = differ(measures[0], pair.champion, pair.challenger, ruler)
        apart[taken_back(measures[0], pair, ruler)] = False
        new: dict[int, int] = {}
        for row in np.flatnonzero(apart).tolist():
            talk = pair.entities[row] if len(pair.entities) else ""
            if talk in self._shown:
                continue
            self._shown |= {talk} - {""}
            self._differing += 1
            if self._plan.has_judge:
                self._unjudged.append(_example(questions, both[row], pair, row, ruler))
            if self.labels and len(self.examples) == EXAMPLES:
                continue  # pairs that people look at stay
            place = (
                len(self.examples)
                if len(self.examples) < EXAMPLES
                else int(self._random.integers(self._differing))
            )
            if place >= EXAMPLES:
                continue
            self.examples[place : place + 1] = [_example(questions, both[row], pair, row, ruler)]
            new[place] = row
        if new and self._are_texts(ruler, pair.champion, pair.challenger):
            if not self._are_texts(ruler, pair.again, pair.challenger_again):
                pair = replace(pair, again=None)
            rows = np.array([*new.values()], dtype=np.intp)
            ids = questions.keys[both[rows]].astype(str).tolist()
            found = pair_energies(pair, rows, lambda each: self._vectors(each, ruler))
            self._energies |= zip(ids, found.tolist(), strict=True)

    @property
    def examples_by_energy(self) -> list[dict[str, Any]]:
        """Examples by decreasing energy distance."""
        return sorted(self.examples, key=lambda one: -self._energies.get(one["id"], 0.0))


def _more_failures(kind: str, found: OutcomeVerdict) -> str:
    if found.value >= 0.0:
        return f"{kind} to {share_text(found.value, found.low, found.high)} more of the questions"
    return f"{kind} to {share_text(-found.value, -found.high, -found.low)} fewer of the questions"


def target_of(one: Batch, two: Batch, plan: ComparePlan) -> str:
    names = [
        name.removeprefix("outputs.") for name in one.names if name.startswith("outputs.") and two.has(name)
    ]
    return plan.target or next((name for name in (*_PREFERRED, *names) if name in names), "label")


def ruler_of(one: Batch, two: Batch, plan: ComparePlan, reach: EmbeddingReach | None = None) -> Ruler:
    """Rules for comparing the answers of two systems; the spread of scores is that of production, ``one``."""
    target, agree = plan.target, plan.agree
    if target and not one.has(f"outputs.{target}"):
        raise ConfigError(f"--target {target}: no such output; production answers {form_of(one)}")
    chosen = target_of(one, two, plan)
    if agree and chosen != "text":
        raise ConfigError(f"--agree {agree[0]}: outputs.text expected; production answers {form_of(one)}")
    ruler = Ruler(
        chosen,
        is_text=chosen == "text",
        score_tolerance=plan.tolerance,
        agree=agree,
        reach=0.0 if reach is None else reach.distance,
    )
    return ruler.at(one)


def form_of(answers: Batch) -> str:
    return (
        ", ".join(
            f"{name.removeprefix('outputs.')} ({kind_of(answers.arrow(name).type)})"
            for name in answers.names
            if name.startswith("outputs.") and name != VECTORS
        )
        or "nothing"
    )


def kind_of(kind: pa.DataType) -> str:
    """Word for a column's type in messages.

    Examples
    --------
    >>> kind_of(pa.string()), kind_of(pa.float32()), kind_of(pa.list_(pa.int8())), kind_of(pa.null())
    ('texts', 'numbers', 'lists', 'nothing')
    """
    if is_tensor(kind):
        return "vectors"
    tests = {
        "texts": pa.types.is_string, "numbers": pa.types.is_floating, "whole numbers": pa.types.is_integer,
        "lists": pa.types.is_list, "nothing": pa.types.is_null,
    }  # fmt: skip
    return next((word for word, is_one in tests.items() if is_one(kind)), str(kind))


def number_kinds(
    one: Batch, two: Batch, known: Mapping[str, NumberKind], measures: Sequence[Measure]
) -> dict[str, NumberKind]:
    """Outputs that are integers on one side and floats on the other: ``class`` if the floats are whole
    and no score was compared yet, else ``number``."""
    found: dict[str, NumberKind] = {}
    for name in one.names:
        if not name.startswith("outputs.") or name in known or not two.has(name):
            continue
        sides = [side.arrow(name) for side in (one, two)]
        whole = [pa.types.is_integer(each.type) for each in sides]
        broken = [pa.types.is_floating(each.type) for each in sides]
        if not (any(whole) and any(broken)):
            continue
        values = sides[broken.index(True)].drop_null()
        ruler = Ruler(target=name.removeprefix("outputs."))
        is_class = "label" in measures_of((one, two)[whole.index(True)], ruler) and "score" not in measures
        is_class = is_class and bool(pc.all(pc.equal(pc.floor(values), values)).as_py())
        found[name] = "class" if is_class else "number"
    return found


def with_calls(one: Batch, two: Batch) -> tuple[Batch, Batch]:
    """Add an empty ``tool_calls`` column to a side that lacks it if the other has one."""

    def filled(side: Batch, other: Batch) -> Batch:
        if side.has(TOOL_CALLS) or not (other.has(TOOL_CALLS) and side.has("outputs.text")):
            return side
        return side.with_columns({TOOL_CALLS: ["[]"] * side.rows})

    return filled(one, two), filled(two, one)


def slice_names(questions: Batch, column: str) -> NDArray[np.object_]:
    """Slice of each question, such as ``country=DE``; empty without a value."""
    found = np.full(questions.rows, "", dtype=object)
    if questions.has(column):
        short = column.partition(".")[2] or column
        values = questions.arrow(column).to_pylist()
        found[:] = [f"{short}={value}" if value is not None else "" for value in values]
    return found


def _conversations(questions: Batch) -> list[str]:
    if not questions.has("entity") or questions.is_null("entity").all():
        return []
    return [value or "" for value in questions.arrow("entity").to_pylist()]


def _asks_for_json(body: str) -> bool:
    try:
        form = json.loads(body).get("response_format")
    except (ValueError, AttributeError):
        return False
    return isinstance(form, dict) and form.get("type") in ("json_object", "json_schema")


def _no_json(answer: Batch) -> NDArray[np.bool_]:
    def fails(text: Any) -> bool:
        try:
            json.loads(text)
        except (TypeError, ValueError, RecursionError):
            return True
        return False

    return np.array([fails(text) for text in answer.arrow("outputs.text").to_pylist()], dtype=np.bool_)


def _twice(
    both: NDArray[np.intp],
    again_rows: NDArray[np.intp],
    production: Answers | None,
    candidate: Answers | None,
) -> tuple[NDArray[np.intp], Batch | None, Batch | None]:
    """Indices into ``both`` of questions that both sides answered twice, and their second answers;
    cached answers are excluded."""
    none = np.zeros(0, dtype=np.intp), None, None
    if production is None or candidate is None:
        return none
    usable = production.is_answered & candidate.is_answered & ~production.is_cached & ~candidate.is_cached
    place = np.full(int(both.max(initial=-1)) + 1, -1, dtype=np.intp)
    place[both] = np.arange(len(both))
    usable &= np.array([row < len(place) and place[row] >= 0 for row in again_rows], dtype=np.bool_)
    if not usable.any():
        return none
    at = place[again_rows[usable]]
    order, rows = np.argsort(at), np.flatnonzero(usable)
    return at[order], production.outputs.take(rows[order]), candidate.outputs.take(rows[order])


def _example(
    questions: Batch, question: np.intp, pair: PairedAnswers, row: int, ruler: Ruler
) -> dict[str, Any]:
    """JSON object of a question and both answers, which are ``row`` of the pair."""
    (one, _), (two, _) = (answer_texts(each, [row], ruler)[0] for each in (pair.champion, pair.challenger))
    inputs = {
        name.removeprefix("inputs."): _without_nan(questions.arrow(name)[int(question)].as_py())
        for name in questions.names
        if name.startswith("inputs.")
    }
    return {
        "id": str(questions.keys[question]),
        "slice": pair.slices[row],
        "inputs": inputs,
        "production": few_digits(one),
        "candidate": few_digits(two),
    }


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity by None, because JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return value
