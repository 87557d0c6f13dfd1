"""An embedding says *same* only where it would have shown one exchanged number or word."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics.blind import DRAWN
from outrider.assertions import Batch
from outrider.assertions.comparison.embedding_reach import MOST, EmbeddingReach
from outrider.assertions.texts.words import words
from outrider.errors import ConfigError
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.candidate_result import CandidateResult
from outrider.monitor.compare.embedder import TextEmbedder
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.report import EXAMPLES, CompareReport
from outrider.monitor.compare.run import ComparisonRun, drive
from tests.monitor.compare_askers import Sampled
from tests.soak import rounds

from . import embedders

Random = np.random.Generator
Saying = Callable[[int, Random], str]
BLIND = "the embedding does not tell an answer from one with a number or word exchanged in "


def answered(questions: Batch, columns: dict[str, Any]) -> Answers:
    rows = questions.rows
    return Answers(
        Batch.from_columns({"id": questions.keys} | columns, model="m", rows=rows),
        np.full(rows, "answered", dtype=object),
        np.full(rows, "", dtype=object),
        np.full(rows, 0.01),
        np.full((rows, 2), -1),
        np.zeros(rows, dtype=np.bool_),
    )


class Teller:
    """System that says something to each number."""

    def __init__(self, name: str, said: Saying, seed: int = 0) -> None:
        self.name, self.retries = name, 0
        self.borrowed: Counter[str] = Counter()
        self._said, self._random = said, np.random.default_rng([seed, len(name)])

    def ask(self, questions: Batch, /) -> Answers:
        texts = [self._said(x, self._random) for x in questions.column("inputs.x").tolist()]
        return answered(questions, {"outputs.text": texts})

    def close(self) -> None: ...


class Embedding(Teller):
    """Embedding model of this process."""

    def __init__(self, call: Callable[[Batch], dict[str, Any]]) -> None:
        super().__init__("embedding", lambda x, _: str(x))
        self._call = call
        self.texts: list[list[str]] = []
        self.before: Callable[[], None] = lambda: None

    def ask(self, questions: Batch, /) -> Answers:
        self.before()
        self.texts.append(questions.column("inputs.text").tolist())
        return answered(questions, {f"outputs.{name}": v for name, v in self._call(questions).items()})


def plain(x: int, *, days: int = 0, is_inverted: bool = False, drawn: Random | None = None) -> str:
    """Sentence of a decision, a number and some words, the same for one question."""
    fixed = np.random.default_rng(x)
    decision = ("approved", "rejected")[int(fixed.integers(2)) ^ is_inverted]
    number = 30 + 7 * int(fixed.integers(5)) + days
    return " ".join([decision, f"within {number} days", *(drawn or fixed).choice(DRAWN, 6)])


def loose(said: Callable[[int], str]) -> Saying:
    """The same words, in other letters and with other marks each time."""

    def marked(x: int, random: Random) -> str:
        parts = said(x).split()
        upper, marks = random.random(len(parts)) < 0.3, random.choice([" ", " - ", "... "], len(parts))
        return "".join((w.upper() if u else w) + m for w, u, m in zip(parts, upper, marks, strict=True))

    return marked


def traffic(rows: int, seed: int) -> Iterator[Batch]:
    order = np.random.default_rng(seed).permutation(100_000)[:rows]
    for start in range(0, rows, 500):
        x = order[start : start + 500]
        yield Batch.from_columns({"id": x.astype(str), "inputs.x": x}, model="m", rows=len(x))


def compared(
    production: Saying,
    candidate: Saying,
    call: Callable[[Batch], dict[str, Any]] = embedders.ngrams,
    *,
    agree: tuple[str, ...] = ("embedding",),
    seed: int = 0,
    rows: int = 1200,
) -> CandidateResult:
    asked = [Teller(name, said, seed) for name, said in (("production", production), ("new", candidate))]
    plan = ComparePlan(has_embedding=True, agree=agree, seed=seed)
    run = ComparisonRun(asked[0], asked[1:], plan, embedder=TextEmbedder(Embedding(call), seed))
    drive(run, traffic(rows, seed), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    return run.results[0]


SEEDS = range(rounds(20, part=20))


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("seed", SEEDS)
def test_embedding_says_same_of_equal_facts_in_other_letters_where_words_are_undecided(seed: int) -> None:
    found = compared(loose(plain), loose(plain), seed=seed)
    assert (found.conclusion.word, found.verdict.decided_by) == ("same", "embedding")
    assert found.rows <= 1100
    bare = compared(loose(plain), loose(plain), agree=(), seed=seed, rows=400)
    assert bare.conclusion.word == "undecided"
    assert "embedding" not in bare.verdict.measures


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("change", [{"days": 60}, {"is_inverted": True}], ids=["number", "decision"])
def test_embedding_says_different_of_a_changed_number_or_decision(change: dict[str, Any], seed: int) -> None:
    found = compared(loose(plain), loose(lambda x: plain(x, **change)), seed=seed, rows=300)
    assert (found.conclusion.word, found.verdict.decided_by) == ("different", "embedding")


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("seed", SEEDS)
def test_embedding_of_no_digits_is_undecided_whatever_number_changed(seed: int) -> None:
    said = loose(lambda x: plain(x, days=60))
    found = compared(loose(plain), said, embedders.without_digits, seed=seed)
    assert found.conclusion.word == "undecided"
    assert f"{BLIND}100 % of production's answers" in found.conclusion.sentence


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("call", [embedders.constant, embedders.missing])
def test_embedding_of_one_vector_or_of_none_is_undecided(call: Callable[[Batch], dict[str, Any]]) -> None:
    for said in (plain, lambda x: "no word of it"):
        found = compared(loose(plain), loose(said), call, rows=900)
        assert found.conclusion.word == "undecided", found.conclusion
        assert BLIND in found.conclusion.sentence


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_embedding_is_undecided_by_noise_where_production_paraphrases() -> None:
    def drawn(x: int, random: Random) -> str:
        return plain(x, drawn=random)

    found = compared(drawn, drawn, rows=900)
    assert found.conclusion.word == "undecided"
    assert "production differs from itself in" in found.conclusion.sentence
    found = compared(drawn, lambda x, random: plain(x, days=60, drawn=random), rows=900)
    assert found.conclusion.word in ("undecided", "different")


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_embedding_proves_close_where_texts_as_a_whole_are_proven_to_be_others() -> None:
    def with_marks(batch: Batch) -> dict[str, Any]:
        marks = [[0.5 * text.count("!")] for text in batch.column("inputs.text")]
        return {"embedding": np.hstack([embedders.ngrams(batch)["embedding"], marks])}

    found = compared(loose(plain), lambda x, _: f"{plain(x)} !", with_marks)
    assert found.verdict.word == "same"
    assert found.conclusion.word == "close"
    assert "as a whole its texts are others" in found.conclusion.sentence


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("seed", SEEDS)
def test_embedding_that_reads_beginnings_never_says_same_of_a_change_in_the_rest(seed: int) -> None:
    def long(x: int, days: int) -> str:
        is_long = x % 20 == 0  # 5 % of the answers, of which the embedding sees the first half
        return ("parcel street window " * 15 if is_long else "") + plain(x, days=days if is_long else 0)

    found = compared(
        loose(lambda x: long(x, 0)), loose(lambda x: long(x, 60)), embedders.beginnings, seed=seed
    )
    assert found.conclusion.word == "undecided"
    assert BLIND in found.conclusion.sentence


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_embedding_shows_a_number_changed_in_the_longest_answers_alone() -> None:
    def long(x: int, days: int) -> str:
        if x % 25:
            return plain(x)
        return f"{plain(x, days=days)} {' '.join(np.random.default_rng(x).choice(DRAWN, 24))}"

    found = compared(loose(lambda x: long(x, 0)), loose(lambda x: long(x, 60)), rows=1000)
    assert found.conclusion.word in ("undecided", "different")
    assert 0.03 < found.comparison.tallies["embedding", ""].differs.rate < 0.05


def test_reach_is_fixed_with_the_first_answers_and_tried_on_later_ones() -> None:
    reach = EmbeddingReach(np.random.default_rng(0))
    assert reach.hidden == 1.0
    reach.update(np.zeros(0))
    reach.update(np.array([0.0, 0.4, np.nan]))
    assert (reach.distance, reach.hidden) == (0.2, 2 / 3)
    reach.update(np.array([0.2, 0.19]))
    assert (reach.distance, reach.answers, reach.below) == (0.2, 5, 3)
    assert len({row for row, _ in reach.exchanged(["30 days"] * 1000)}) == MOST - 5


def test_reach_of_a_json_text_exchanges_values_and_no_names() -> None:
    value = {"decision": "approved", "days": 30, "is_final": True}
    texts = [f"```json\n{json.dumps(value)}\n```", "parcels leave tomorrow"]
    reach = EmbeddingReach(np.random.default_rng(0))
    forms = {form for _ in range(60) for row, form in reach.exchanged(texts) if row == 0}
    found = [json.loads(form.removeprefix("```json").removesuffix("```")) for form in forms]
    changes = [{name for name in value if other[name] != value[name]} for other in found]
    assert all(other.keys() == value.keys() for other in found)
    assert all(len(each) == 1 for each in changes)
    assert set.union(*changes) == value.keys()


@given(
    st.lists(st.text(alphabet='ab c30,。天退款T"{}:', max_size=40), min_size=1, max_size=8),
    st.integers(0, 99),
)
def test_reach_exchanges_one_item_of_each_text_that_has_any(texts: list[str], seed: int) -> None:
    for row, form in EmbeddingReach(np.random.default_rng(seed)).exchanged(texts):
        assert form != texts[row]
        assert words(form) != words(texts[row])


def test_embedding_is_asked_once_for_a_text_of_all_sides_and_without_the_lock() -> None:
    model = Embedding(embedders.ngrams)
    names = ("production", "new", "other")
    asked = [Teller(name, lambda x, _: plain(x)) for name in names]
    run = ComparisonRun(asked[0], asked[1:], ComparePlan(has_embedding=True), embedder=TextEmbedder(model))
    locked: list[bool] = []
    model.before = lambda: locked.append(run._lock.locked())
    for questions in traffic(300, 0):
        run.look(questions)
    run.close()
    [texts] = model.texts
    assert len(texts) == len(set(texts)) <= 300 + 2 * MOST
    assert locked == [False]
    assert [each.conclusion.word for each in run.results] == ["undecided", "undecided"]  # of 300


def test_agree_embedding_without_an_embedding_is_refused() -> None:
    with pytest.raises(ConfigError, match="--agree embedding needs --embed: a model that makes vectors"):
        ComparePlan(agree=("embedding",))


def test_examples_come_by_energy_and_pairs_to_label_stay_as_they_were_drawn() -> None:
    def changed(x: int, _: Random) -> str:
        return f"no word of {x}" if x % 5 == 0 else plain(x, is_inverted=True)

    asked = [Teller("production", lambda x, _: plain(x)), Teller("new", changed)]
    plan = ComparePlan()
    run = ComparisonRun(asked[0], asked[1:], plan)
    drive(run, traffic(500, 1), Until(False, 500), stop=threading.Event(), tell=lambda _: None)
    report = CompareReport.of(run, plan, ending="records", funnel={}, seconds=1.0)
    run.close()
    [found] = report.data["candidates"]
    shown = [int(each["id"]) for each in found["examples"]]
    assert len(shown) == EXAMPLES
    assert all(x % 5 == 0 for x in shown)
    drawn = [each["id"] for each in found["to_label"]]
    assert drawn == [each["id"] for each in run.results[0].examples]
    assert sum(int(x) % 5 == 0 for x in drawn) < len(drawn) / 2


def test_embedding_is_asked_about_recorded_answers_and_never_where_labels_are_compared() -> None:
    model = Embedding(embedders.ngrams)
    plan = ComparePlan(has_embedding=True, agree=("embedding",), is_deterministic=True)
    run = ComparisonRun(None, [Teller("new", loose(plain))], plan, embedder=TextEmbedder(model))
    for questions in traffic(1000, 0):
        texts = [plain(x) for x in questions.column("inputs.x").tolist()]
        run.look(questions.with_columns({"outputs.text": texts}))
    run.close()
    assert run.results[0].conclusion.word == "same"
    assert run.results[0].verdict.decided_by == "embedding"
    model.texts.clear()
    labels = ComparisonRun(
        Sampled("production"), [Sampled("new")], ComparePlan(has_embedding=True), embedder=TextEmbedder(model)
    )
    labels.look(next(iter(traffic(300, 0))))
    labels.close()
    assert model.texts == []
    assert labels.results[0].rows == 300
