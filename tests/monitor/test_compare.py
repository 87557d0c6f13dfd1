"""A comparison asks, looks, and says in one sentence whether a candidate answers like production."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.errors import ServerError
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.judge import PairJudge, is_drawn, judged_pairs
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.report import CompareReport
from outrider.monitor.compare.run import ComparisonRun, Ending, drive
from outrider.monitor.compare.traffic import ROWS
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.views.comparisons.page import ComparePage, compare_page
from outrider.monitor.views.comparisons.report_view import marked

from .compare_askers import Sampled, traffic

Found = tuple[ComparisonRun, CompareReport, Ending]


def compared(
    *candidates: Sampled,
    production: Sampled | None = None,
    plan: ComparePlan | None = None,
    until: Until | None = None,
) -> Found:
    plan = plan or ComparePlan(twice=0.25)
    run = ComparisonRun(production or Sampled("production", noise=0.02, seed=1), candidates, plan)
    try:
        ending = drive(run, traffic(), until or Until(), stop=threading.Event(), tell=lambda _: None)
    finally:
        run.close()
    return run, CompareReport.of(run, plan, ending=ending, funnel={"seen": 20_000}, seconds=1.0), ending


def words(report: CompareReport) -> list[str]:
    return [each["verdict"] for each in report.data["candidates"]]


def words_of(run: ComparisonRun) -> list[str]:
    return [each.conclusion.word for each in run.results]


def test_an_equal_candidate_is_the_same_and_a_faulty_one_different() -> None:
    run, report, ending = compared(
        Sampled("twin", noise=0.02, seed=2), Sampled("faulty", wrong=0.2, noise=0.02, seed=3)
    )
    assert words(report) == ["same", "different"]
    assert ending == "decided"
    assert run.compared < 10_000
    assert report.exit_code() == 1
    assert report.exit_code(allows_different=True) == 0
    assert report.text().startswith("twin answers the same as production")


def test_a_candidate_that_is_silent_is_worse_and_its_reasons_are_counted() -> None:
    _, report, _ = compared(Sampled("silent", noise=0.02, silent=0.3, seed=2))
    found = report.data["candidates"][0]
    assert found["verdict"] == "worse"
    assert found["why"][0]["reason"] == "no answer within 1 s"
    assert report.exit_code(allows_different=True) == 1


def test_a_candidate_that_never_answers_is_worse() -> None:
    run, report, _ = compared(Sampled("dead", silent=1.0))
    assert words(report) == ["worse"]
    assert run.asked < 200


def test_a_production_that_answers_nothing_ends_the_comparison_with_its_reason() -> None:
    with pytest.raises(
        ServerError, match="production did not answer the last 32 questions: no answer within 1 s"
    ):
        compared(Sampled("twin"), production=Sampled("production", silent=1.0))


def test_a_production_that_answers_nothing_ends_few_questions_with_its_reason_too() -> None:
    with pytest.raises(ServerError, match=r"production answered none of 20 questions.*no answer within 1 s"):
        compared(Sampled("twin"), production=Sampled("production", silent=1.0), until=Until(False, 20))
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production", silent=1.0), [Sampled("twin")], plan)
    run.look(next(iter(traffic(30, 30))))
    run.close()
    assert words_of(run) == ["undecided"]  # as a page shows it meanwhile
    assert "production answered nothing" in run.results[0].conclusion.sentence


def test_a_candidate_that_fails_more_within_the_margin_is_close_and_never_worse_or_the_same() -> None:
    plan = ComparePlan(margin=0.05, twice=0.25)
    production = Sampled("production", seed=1)
    frail, until = Sampled("frail", silent=0.02, seed=2), Until(False, 2000)
    _, report, _ = compared(frail, production=production, plan=plan, until=until)
    found = report.data["candidates"][0]
    assert found["verdict"] == "close"
    assert "no answer to" in found["sentence"]
    assert found["outcomes"]["no answer"]["high"] < 0.05


def test_equal_answers_are_not_the_same_while_more_failures_are_not_ruled_out() -> None:
    plan = ComparePlan(margin=0.02, twice=1.0)
    frail = Sampled("frail", silent=0.0143, seed=2)
    run, report, _ = compared(
        frail, production=Sampled("production", seed=1), plan=plan, until=Until(False, 700)
    )
    assert run.results[0].verdict.word == "same"
    failures = report.data["candidates"][0]["outcomes"]["no answer"]
    more = f"about {failures['more']:,} more records"
    assert (words(report), failures["more"] > 0) == (["undecided"], True)
    assert f"frail: undecided: {more}; what both answer is same, but no answer to" in report.text()
    assert f"settled in {more}" in compare_page(report.data)


class Scored(Sampled):
    """Classifier with a score of each class, rounded to a grid."""

    grid = 0.0

    def ask(self, questions: Batch, /) -> Answers:
        found, score = super().ask(questions), questions.column("inputs.x") * 0.618 % 1.0
        rounded = np.round(score / self.grid) * self.grid if self.grid else score
        return replace(found, outputs=found.outputs.with_columns({"outputs.score": rounded}))


def test_scores_of_equal_labels_are_shown_and_named_in_the_sentence() -> None:
    rounded = Scored("rounded", seed=2)
    rounded.grid = 0.1
    _, report, _ = compared(rounded, production=Scored("production", seed=1))
    found = report.data["candidates"][0]
    assert [(each["measure"], each["verdict"]) for each in found["agreement"]] == [
        ("label", "same"), ("score", "different")
    ]  # fmt: skip
    assert (found["verdict"], report.exit_code()) == ("close", 0)
    assert "its score differs beyond the tolerance in " in report.text()


class Unasked(Sampled):
    """Candidate of which some questions never leave this machine."""

    def ask(self, questions: Batch, /) -> Answers:
        found = super().ask(questions)
        found.fate[found.fate == "late"] = "unasked"
        return replace(found, why=np.where(found.fate == "unasked", "no address", "").astype(object))


def test_questions_that_never_left_this_machine_count_for_nobody() -> None:
    _, report, _ = compared(Unasked("twin", silent=0.3, seed=2), production=Sampled("production", seed=1))
    found = report.data["candidates"][0]
    assert found["verdict"] == "same"
    assert found["outcomes"]["no answer"]["only_candidate"] == 0
    assert found["fates"]["unasked"] > 0
    assert "never left this machine" in report.text()
    run, report, _ = compared(Unasked("unwritable", silent=1.0), production=Sampled("production", seed=1))
    assert words(report) == ["undecided"]
    assert report.exit_code() == 5
    assert run.asked < 200


def test_slices_name_their_measure_and_the_largest_difference_comes_first() -> None:
    plan = ComparePlan(twice=0.25, slices=("attrs.country",))
    _, report, _ = compared(Sampled("faulty", wrong=0.3, seed=2), plan=plan)
    found = report.data["candidates"][0]["slices"]
    keys = [(not each["is_proven"], each["rest"] - each["value"]) for each in found]
    assert keys == sorted(keys)
    first = found[0]
    assert f"{first['name']}, label: " in report.text()


class Numbered(Sampled):
    """Classifier that answers numbers of classes."""

    def __init__(self, name: str, kind: type, *, more: float = 0.0, **options: Any) -> None:
        super().__init__(name, **options)
        self._kind, self._more = kind, more

    def ask(self, questions: Batch, /) -> Answers:
        found = super().ask(questions)
        said = found.outputs.column("outputs.label").tolist()
        numbers = [None if each is None else self._kind(each[-1]) for each in said]
        if self._more:
            numbers[-1] = (numbers[-1] or 0) + self._more
        return replace(found, outputs=found.outputs.with_columns({"outputs.label": numbers}))


@pytest.mark.parametrize("kinds", [(int, float), (float, int)])
def test_whole_and_fractional_numbers_of_equal_classes_are_the_same(kinds: tuple[type, type]) -> None:
    one, two = kinds
    _, report, _ = compared(
        Numbered("twin", two, noise=0.02, seed=2),
        Numbered("faulty", two, wrong=0.2, noise=0.02, seed=3),
        production=Numbered("production", one, noise=0.02, seed=1),
    )
    assert words(report) == ["same", "different"]
    assert report.data["candidates"][0]["agreement"][0]["measure"] == "label"


def test_whole_numbers_beside_fractional_ones_are_scores() -> None:
    _, report, _ = compared(
        Numbered("coarse", int, seed=2), production=Numbered("production", float, more=0.5, seed=1)
    )
    found = report.data["candidates"][0]
    assert found["verdict"] in ("same", "close", "different")
    assert found["agreement"][0]["measure"] == "score"


def test_answers_of_a_cache_are_no_noise_floor() -> None:
    production = Sampled("production", noise=0.05, seed=1)
    production.is_cached = True
    _, report, _ = compared(
        Sampled("twin", noise=0.05, seed=2), production=production, until=Until(False, 2000)
    )
    assert report.data["candidates"][0]["agreement"][0]["asked_twice"] == 0


def test_the_share_that_is_asked_twice_does_not_depend_on_blocks() -> None:
    asked = []
    for limit in (500, 2000):
        production = Sampled("production", seed=1)
        compared(Sampled("twin"), production=production, until=Until(False, limit))
        asked.append({key for key in production.asked if production.asked.count(key) == 2 and int(key) < 500})
    assert asked[0] == asked[1]
    assert 80 < len(asked[0]) < 170


def test_a_comparison_ends_where_it_should() -> None:
    run, _, ending = compared(Sampled("twin"), until=Until(False, 300))
    assert (ending, run.compared) == ("records", 300)
    assert compared(Sampled("twin"), until=Until(False, 10**9))[2] == "traffic"
    assert compared(Sampled("twin"), until=Until(False, 10**9, 0.0))[2] == "time"


@pytest.mark.parametrize(("block", "is_joined"), [(ROWS, True), (500, False)])
def test_long_blocks_are_joined_and_short_ones_of_live_traffic_not_waited_for(
    block: int, is_joined: bool
) -> None:
    rows, production = 8 * ROWS + 100, Sampled("production", seed=1)
    run = ComparisonRun(production, [Sampled("twin")], ComparePlan(twice=0.0))
    asked = [0]
    drive(
        run, traffic(rows, block), Until(False, rows), stop=threading.Event(),
        tell=lambda now: asked.append(now.asked), clock=lambda: 0.0,
    )  # fmt: skip
    run.close()
    assert (max(b - a for a, b in pairwise(asked)) > block) is is_joined
    assert production.asked == [str(x) for x in range(rows)]


def test_a_stopped_comparison_keeps_its_report() -> None:
    plan, stop = ComparePlan(), threading.Event()
    twin = Sampled("twin", seed=2)
    run = ComparisonRun(Sampled("production", seed=1), [twin], plan)
    stop.set()
    assert drive(run, traffic(), Until(), stop=stop, tell=lambda _: None) == "stopped"
    run.close()
    report = CompareReport.of(run, plan, ending="stopped", funnel={}, seconds=0.1)
    assert words(report) == ["undecided"]
    assert report.exit_code() == 6
    assert "it was stopped" in report.text()
    assert twin.is_closed


def test_prices_are_those_of_the_tokens_that_were_used() -> None:
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production"), [Sampled("twin")], plan)
    drive(run, traffic(), Until(False, 100), stop=threading.Event(), tell=lambda _: None)
    run.close()
    report = CompareReport.of(
        run, plan, ending="records", funnel={}, seconds=1.0, prices={"twin": (2.0, 5.0)}
    )
    assert report.data["candidates"][0]["price_per_1000"] == pytest.approx((10 * 2.0 + 2 * 5.0) / 1000)
    assert "price_per_1000" not in report.data["production"]


def test_markdown_holds_no_record_unless_asked_to() -> None:
    _, report, _ = compared(Sampled("faulty", wrong=0.3))
    assert "class " not in report.markdown(has_examples=False)
    assert "class " in report.markdown()


def test_what_records_say_is_no_markup() -> None:
    _, report, _ = compared(Sampled("faulty", wrong=0.3))
    example = report.data["candidates"][0]["examples"][0]
    example["candidate"] = "<script>alert(1)</script> | x `y` [z](http://evil) @all\nnext"
    page, table = compare_page(report.data), report.markdown()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;" in page
    line = next(line for line in table.splitlines() if "alert" in line)
    assert line.count("|") == 4
    assert not set("<[`!") & set(line)
    assert "@all" not in line


def test_differences_are_marked_word_by_word() -> None:
    one, other = marked("Fly me to Rome now", "Fly me to Paris")
    assert one == (("Fly me to ", False), ("Rome now", True))
    assert other == (("Fly me to ", False), ("Paris", True))


def test_a_live_page_takes_labels_which_decide() -> None:
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production", seed=1), [Sampled("faulty", wrong=0.3, seed=2)], plan)
    drive(run, traffic(), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()

    def report() -> Mapping[str, Any]:
        return CompareReport.of(run, plan, ending="running", funnel={}, seconds=1.0).data

    page = ComparePage(report, run.label)
    with LocalServer(page) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/compare/guessed").status_code == 404
        assert client.post("/compare/guessed/labels").status_code == 404
        for wrong in ({}, {"candidate": "faulty", "id": "nobody's", "right": "production"}, {"right": "A"}):
            assert client.post(f"{page.path}/labels", data=wrong).status_code == 422
        first = client.get(page.path)
        assert "Which is right?" in first.text
        assert "script-src 'sha256-" in first.headers["content-security-policy"]
        for pair in report()["candidates"][0]["to_label"][:30]:
            label = {"candidate": "faulty", "id": pair["id"], "right": "production"}
            assert client.post(f"{page.path}/labels", data=label).status_code == 303
        assert "faulty is worse: right in 0 of 30 labelled pairs" in client.get(page.path).text


def recorded(rows: int = 20_000) -> Iterator[Batch]:
    """Traffic with production's answers, which cannot be asked again."""
    for questions in traffic(rows):
        label = [f"class {x % 7}" for x in questions.column("inputs.x")]
        yield questions.with_columns({"outputs.label": label})


@pytest.mark.parametrize(
    ("wrong", "is_deterministic", "word"),
    [(0.0, False, "close"), (0.2, False, "undecided"), (0.0, True, "same"), (0.2, True, "different")],
)
def test_recorded_answers_prove_close_and_more_only_where_production_has_no_noise(
    wrong: float, is_deterministic: bool, word: str
) -> None:
    plan = ComparePlan(is_deterministic=is_deterministic)
    run = ComparisonRun(None, [Sampled("candidate", wrong=wrong)], plan)
    drive(run, recorded(), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    assert run.results[0].conclusion.word == word
    assert "beyond noise" not in run.results[0].conclusion.sentence or is_deterministic


def test_the_slice_of_a_fault_is_named_first() -> None:
    plan = ComparePlan(slices=("attrs.country",))
    faulty = Sampled("faulty", seed=2)
    ask = faulty.ask

    def fails_in_iceland(questions: Batch) -> Answers:
        found = ask(questions)
        label = found.outputs.column("outputs.label").copy()
        label[(questions.column("inputs.x") % 40) == 0] = "none"
        return replace(found, outputs=found.outputs.with_columns({"outputs.label": label}))

    faulty.ask = fails_in_iceland  # type: ignore[method-assign]
    _, report, _ = compared(faulty, plan=plan, until=Until(False, 10_000))
    first = report.data["candidates"][0]["slices"][0]
    assert (first["name"], first["is_proven"]) == ("country=IS", True)


class Judging:
    """Judge that prefers the longer answer, in words around it; asked in both orders."""

    name = "judge"

    def __init__(self) -> None:
        self.retries = 0
        self.borrowed: Counter[str] = Counter()
        self.asked = 0

    def ask(self, questions: Batch, /) -> Answers:
        said = []
        for body in questions.arrow("inputs.request").to_pylist():
            values = json.loads(json.loads(body)["messages"][-1]["content"])
            one, two = len(values["answer_1"]), len(values["answer_2"])
            said.append("tie" if one == two else "1" if one > two else "2")
        self.asked += questions.rows
        outputs = Batch.from_columns({"outputs.text": said}, model="m", rows=questions.rows)
        return Answers.recorded(outputs)

    def close(self) -> None:
        """Nothing is open."""


def test_a_judge_decides_only_where_labels_correct_it() -> None:
    asker = Judging()
    plan = ComparePlan(has_judge=True)
    faulty = Sampled("faulty", seed=2)
    ask = faulty.ask

    def longer(questions: Batch) -> Answers:
        found = ask(questions)
        label = found.outputs.column("outputs.label").copy()
        label[questions.column("inputs.x") % 3 == 0] = "a long class"
        return replace(found, outputs=found.outputs.with_columns({"outputs.label": label}))

    faulty.ask = longer  # type: ignore[method-assign]
    run = ComparisonRun(Sampled("production", seed=1), [faulty], plan, judge=PairJudge(asker, budget=300))
    drive(run, traffic(), Until(False, 2000), stop=threading.Event(), tell=lambda _: None)
    run.close()
    result = run.results[0]
    assert asker.asked <= 600
    assert len(result.judged) >= 300  # what was judged once is known
    assert set(result.judged.values()) == {1.0}
    assert words_of(run) == ["different"]
    assert 40 < len(result.drawn) < 0.4 * len(result.judged)
    for pair in list(result.drawn):
        assert run.label("faulty", pair["id"], "production")
    assert words_of(run) == ["worse"]
    assert f"corrected by {len(result.drawn)} labels" in result.conclusion.sentence


def test_judgements_count_up_to_the_first_pair_that_waits_for_its_label() -> None:
    judged = {str(number): 1.0 for number in range(2000)}
    drawn = [name for name in judged if is_drawn(name, 0)]
    assert 400 < len(drawn) < 600
    some = judged_pairs(judged, dict.fromkeys(drawn[:40], -1.0), 0)
    assert (some.labels, some.records) == (40, int(drawn[40]))
    # Were all others counted, a tenth of the labels would correct a judge that is always wrong.
    assert some.verdict().direction == "worse"
    assert judged_pairs(judged, {}, 0).labels == 0


def test_pairs_to_label_are_of_different_conversations() -> None:
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production"), [Sampled("faulty", wrong=0.5)], plan)
    turns = (
        batch.with_columns({"entity": [f"talk {x // 50}" for x in batch.column("inputs.x")]})
        for batch in traffic(1000)
    )
    drive(run, turns, Until(False, 1000), stop=threading.Event(), tell=lambda _: None)
    run.close()
    talks = [int(pair["id"]) // 50 for pair in run.results[0].to_label]
    assert len(talks) == len(set(talks)) == 20


def test_the_chart_shows_one_measure_and_each_number_of_records_once() -> None:
    run, report, _ = compared(Sampled("faulty", wrong=0.3, noise=0.02, seed=2))
    assert run.label("faulty", run.results[0].to_label[0]["id"], "both")
    found = report.data["candidates"][0]
    records = [look["records"] for look in found["history"]]
    assert records == sorted(set(records)) == [look.records for look in run.results[0].looks]
    assert found["history"][-1]["value"] == found["agreement"][0]["beyond_noise"]["value"]
