"""Shadow tests over stored answers: begun, followed, ended with a recommendation."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import write
from outrider.dataops.state.disabled_versions import leave_out
from outrider.monitor.engine.asks import again_of
from outrider.monitor.metrics.channel import new_metrics
from outrider.monitor.trainer.agreement import LEAST_SCORES, Follower
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.metrics import LoopMetrics
from outrider.monitor.trainer.shadow_tests import ShadowTests
from outrider.monitor.trainer.weights_size import bytes_share
from tests.dataops.model_kinds.folders import bert_config, save, write_tokenizer
from tests.monitor import shadow_sample
from tests.monitor.shadow_sample import MODEL, START_US, Stream, open_stream

WRONG = {"twin": 0.0, "half": 0.0, "worse": 0.1}


@contextmanager
def stream(folder: Path, **options: Any) -> Iterator[Stream]:
    made = open_stream(folder, **options)
    try:
        yield made
    finally:
        made.engine.dispose()
        made.journal.close()


def trials_of(made: Stream) -> dict[str, Trial]:
    with made.engine.connect() as connection:
        return {trial.version: trial for trial in shadow_tests.newest(connection, MODEL)}


def found(trial: Trial, measure: str = "label", name: str = "") -> dict[str, Any]:
    rows = {(row["measure"], row["slice"]): row for row in trial.findings["agreement"]}
    row: dict[str, Any] = rows[measure, name]
    return row


def test_three_challengers_are_told_apart(tmp_path: Path) -> None:
    with stream(tmp_path, wrong=WRONG) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(100)
        watch.look()
        trials = trials_of(made)
        assert set(trials) == set(WRONG)
        verdicts = {version: found(trial)["verdict"] for version, trial in trials.items()}
        assert verdicts == {"twin": "same", "half": "same", "worse": "different"}
        twin = found(trials["twin"])
        assert twin["rows"] == made.fed
        assert twin["raw"]["value"] < 1.0 == twin["beyond"]["high"]  # rounding is no difference
        assert 0.0 < twin["noise"]["value"] < 0.03
        worse = found(trials["worse"])
        assert worse["beyond"]["low"] < 1 - 0.4 / 3 < worse["beyond"]["high"]
        slices = {row["slice"] for row in trials["worse"].findings["agreement"]}
        assert slices == {"", "till-1", "till-2", "<i>till-3"}
        assert found(trials["worse"], name="<i>till-3")["beyond"]["value"] < worse["beyond"]["value"]
        advice = {version: trial.findings["advice"] for version, trial in trials.items()}
        assert advice == {"twin": "keep", "half": "promote", "worse": "keep"}
        assert "nothing would be gained" in trials["twin"].findings["reasons"][0]
        assert "wrong more often" in trials["worse"].findings["reasons"][0]
        example = trials["worse"].findings["progress"]["examples"][0]
        assert example["champion"] != example["challenger"]
        assert all(trial.is_running for trial in trials.values())
        metrics = new_metrics(models=[MODEL])
        LoopMetrics(metrics, made.engine).observe()
        for figure, of in (("beyond", "value"), ("low", "low"), ("high", "high")):
            labels = {"model": MODEL, "version": "worse", "figure": figure}
            shown = metrics.registry.get_sample_value("outrider_shadow_agreement_ratio", labels)
            assert shown == worse["beyond"][of]


def test_what_is_known_does_not_depend_on_when_one_looks_or_where_the_process_died(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with stream(tmp_path / "a", wrong=WRONG) as one, stream(tmp_path / "b", wrong=WRONG) as two:
        watch = ShadowTests(one.context)
        watch.look()
        ShadowTests(two.context).look()
        one.feed(20)
        watch.look()
        for _ in range(4):
            two.feed(5)
            ShadowTests(two.context).look()  # a new process each time
        for version in WRONG:
            first, second = (trials_of(made)[version].findings["progress"] for made in (one, two))
            tallies = [sorted(map(repr, each["comparison"]["tallies"])) for each in (first, second)]
            assert tallies[0] == tallies[1]
            assert first["comparison"]["apart"] == second["comparison"]["apart"]


def test_a_test_ends_in_time_with_its_reasons_and_tells(tmp_path: Path) -> None:
    limits = {"twin": {"shadow_s": 60.0}, "worse": {"shadow_rows": 1000}}
    with stream(tmp_path, wrong={"twin": 0.0, "worse": 0.2}, limits=lambda v: limits[v]) as made:
        clock = [START_US]
        targets = [WebhookTarget("http://hook", ("shadow.ended",))]
        context = JobContext(made.settings, made.engine, made.objects, made.journal, targets)
        watch = ShadowTests(context, now=lambda: clock[0])
        watch.look()
        made.feed(30)
        watch.look()
        assert [version for version, trial in trials_of(made).items() if not trial.is_running] == ["worse"]
        assert trials_of(made)["worse"].recommendation == "keep"
        clock[0] += 61_000_000
        watch.look()
        watch.look()
        assert not trials_of(made)["twin"].is_running  # and is not begun again
        with made.engine.connect() as connection:
            rows = connection.execute(text("SELECT payload FROM outbox ORDER BY created_us")).scalars().all()
        assert len(rows) == 2
        assert '"recommendation": "keep"' in rows[0]
        assert '"version": "worse"' in rows[0]


def test_the_first_test_of_a_version_begins_with_its_first_answer(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        made.feed(5)
        ShadowTests(made.context).look()
        assert found(trials_of(made)["twin"])["rows"] == made.fed


def test_a_test_that_cannot_be_followed_does_not_hold_up_the_others(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"bad": 0.0, "twin": 0.0}) as made:
        made.feed(2)
        with write(made.engine) as connection:
            connection.execute(text("UPDATE answer SET payload = x'00' WHERE version = 'bad'"))
        ShadowTests(made.context).look()
        trials = trials_of(made)
        assert not trials["bad"].findings
        assert found(trials["twin"])["rows"] == made.fed


def test_a_challenger_that_answers_something_else_is_told_so(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"other": 0.0}) as made:
        made.feed(2)
        other = Batch.from_columns({"id": ["r000000"], "outputs.mask": [b"0"]}, model=MODEL, rows=1).to_ipc()
        with write(made.engine) as connection:
            connection.execute(text("UPDATE answer SET payload = :p WHERE version = 'other'"), {"p": other})
        ShadowTests(made.context).look()
        assert "nothing to compare" in trials_of(made)["other"].findings["reasons"][0]


def test_flags_count_on_blocks_alone_that_both_have_answered(tmp_path: Path) -> None:
    """Where the challenger was shed, the champion's flags would hide those of a worse challenger."""
    with stream(tmp_path, wrong={"worse": 0.1}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(30)
        with write(made.engine) as connection:
            last = connection.execute(text("SELECT max(seq) FROM answer")).scalar()
            assert last is not None
            shed = {"until": last - 15}
            connection.execute(text("DELETE FROM answer WHERE version = 'worse' AND seq <= :until"), shed)
            connection.execute(text("DELETE FROM flag WHERE seq <= :until"), shed)
            connection.execute(
                text(
                    "INSERT INTO flag (id, model, record_id, assertion, revision, slot, severity, level,"
                    " seq, row, ts_us) SELECT id, model, id, 'margin_is_wide', '1', 'champion', 1.0,"
                    " 'warning', seq, row, ts_us FROM record WHERE seq <= :until"
                ),
                shed,
            )
        watch.look()
        (trial,) = trials_of(made).values()
        assert trial.findings["flags"]["only_champion"] == 0
        assert trial.findings["flags"]["only_challenger"] > 30
        assert trial.findings["flags"]["assertions"]["margin_is_wide"]["champion"] == 0
        assert any("for the challenger alone" in reason for reason in trial.findings["reasons"])


def test_a_twin_of_a_model_folder_is_smaller_though_nothing_of_it_is_kept(tmp_path: Path) -> None:
    words = write_tokenizer(tmp_path / "bert")
    save(tmp_path / "bert", "BertForSequenceClassification", bert_config(len(words)))
    folder = Source("hf", "bert", inputs=("text",))
    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        with write(made.engine) as connection:
            for version, recipe in {"1": (), "twin": ("bf16",)}.items():
                source = replace(folder, recipe=recipe).to_json()
                connection.execute(
                    text(
                        "UPDATE model_version SET weights = NULL, source = :source WHERE version = :version"
                    ),
                    {"source": source, "version": version},
                )
        assert bytes_share(made.context, MODEL, "twin", "1") == pytest.approx(0.5, abs=0.05)


def test_labels_that_were_bought_where_the_champion_looked_doubtful_prove_nothing(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"half": 0.0}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(10)
        with write(made.engine) as connection:
            insert = (
                "INSERT INTO label_request (model, record_id, policy, reason, probability, round, created_us,"
                " position, population, is_audit, floor) SELECT model, record_id, 'adaptive', 'odd', 0.3,"
                " 1, 0, row, 1000, 0, 0.5 FROM label WHERE row >= 20"
            )
            connection.execute(text(insert))
            connection.execute(text("UPDATE label_request SET is_audit = 1 WHERE record_id LIKE '%40'"))
        watch.look()
        (trial,) = trials_of(made).values()
        # of rows 0, 10, ... 40 of each of ten blocks: 0 and 10 came unasked, 40 of the audit (in five blocks)
        assert trial.findings["labels"]["rows"] == 25


def test_a_step_that_breaks_halfway_is_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = Follower._compare

    def broken(*arguments: Any) -> None:
        compare(*arguments)
        raise RuntimeError("halfway")

    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(5)
        monkeypatch.setattr(Follower, "_compare", broken)
        watch.look()
        monkeypatch.undo()
        watch.look()
        assert found(trials_of(made)["twin"])["raw"]["rows"] == made.fed


def test_another_champion_ends_a_test_and_begins_a_new_one(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"twin": 0.0, "worse": 0.0}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(5)
        watch.look()
        with write(made.engine) as connection:
            connection.execute(text("UPDATE model_version SET status = 'retired' WHERE version = '1'"))
            connection.execute(text("UPDATE model_version SET status = 'champion' WHERE version = 'twin'"))
        watch.look()
        with made.engine.connect() as connection:
            running = shadow_tests.running(connection)
            ended = connection.execute(
                text("SELECT version, recommendation FROM shadow_test WHERE ended_us IS NOT NULL ORDER BY 1")
            ).all()
        assert [(trial.version, trial.champion) for trial in running] == [("worse", "twin")]
        assert [tuple(row) for row in ended] == [("twin", "undecided"), ("worse", "undecided")]


def test_without_second_answers_the_floor_is_unknown(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"worse": 0.2}, again=0.0) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(40)
        watch.look()
        known = found(trials_of(made)["worse"])
        assert (known["noise"], known["challenger_noise"]) == (None, None)
        assert known["verdict"] == "undecided"


@pytest.mark.parametrize("missing", ["1", "worse"])
def test_second_answers_of_one_model_alone_say_nothing(tmp_path: Path, missing: str) -> None:
    with stream(tmp_path, wrong={"worse": 0.2}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(20)
        with write(made.engine) as connection:
            gone = text("DELETE FROM answer WHERE version = :version")
            connection.execute(gone, {"version": again_of(missing)})
        watch.look()
        assert found(trials_of(made)["worse"])["noise"] is None


def test_the_tolerance_of_scores_is_a_share_of_many_of_the_champion_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record has no spread: its like would be told apart by rounding."""
    answered = shadow_sample._answer
    monkeypatch.setattr(shadow_sample, "_answer", lambda *args: _without_probs(answered(*args)))
    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(LEAST_SCORES - 1, rows=1)
        watch.look()
        assert "agreement" not in trials_of(made)["twin"].findings
        made.feed(3, rows=1)
        watch.look()
        known = found(trials_of(made)["twin"], "score")
        assert known["raw"]["rows"] == made.fed
        assert known["raw"]["value"] == 1.0


def _without_probs(answer: Batch) -> Batch:
    columns = {name: answer.column(name) for name in ("outputs.label", "outputs.score")}
    return Batch.from_columns({"id": answer.keys, **columns}, model=MODEL, rows=answer.rows)


@pytest.mark.parametrize("rows", [1, 3])
def test_blocks_of_single_records_are_compared_like_large_ones(tmp_path: Path, rows: int) -> None:
    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        watch = ShadowTests(made.context)
        watch.look()
        made.feed(40, rows=rows)
        watch.look()
        assert found(trials_of(made)["twin"])["rows"] == 40 * rows


def test_a_challenger_that_does_not_answer_is_advised_against_with_its_reason(tmp_path: Path) -> None:
    with stream(tmp_path, wrong={"twin": 0.0}) as made:
        with write(made.engine) as connection:
            leave_out(connection, MODEL, "twin", "CUDA out of memory", now_us=START_US)
        ShadowTests(made.context).look()
        ShadowTests(made.context).look()
        findings = trials_of(made)["twin"].findings
        assert findings["advice"] == "keep"
        assert findings["reasons"] == ["the challenger does not answer: CUDA out of memory"]
