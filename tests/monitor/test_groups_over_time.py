"""Rates of groups of a worked stream are what the records give, by step and judged version."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests.fairness import group_metrics
from outrider.dataops.erasure.state_rows import erase_rows_of, name_gone
from outrider.dataops.erasure.target import ErasureTarget, Found
from outrider.dataops.erasure.texts import Quotations
from outrider.dataops.ledger.cube import roll_up
from outrider.dataops.ledger.minutes import DAY_US, HOUR_US, MINUTE_US
from outrider.dataops.state.database import write
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.series.answer import SeriesReport, SeriesRequest, groups_json
from outrider.monitor.views.series.groups import CountedGroups, GroupCut, grouped_by
from tests.end_to_end.service import CONFIG, write_project
from tests.monitor.workbench import START_US, Workbench, workbench

RNG = np.random.default_rng(11)
LABELLED = ("tpr", "fpr", "ppv", "accuracy")


def drawn(block: int, at: int) -> dict[str, Any]:
    sex = "fmx"[int(RNG.integers(0, 3))] if at % 10 else None
    truth = int(RNG.random() < 0.5)
    said = int(RNG.random() < (0.8 if truth else 0.4 if sex == "m" else 0.2))
    row: dict[str, Any] = {
        "id": f"r{block}-{at}",
        "version": "7" if block < 12 else "8",
        "outputs": {"label": said},
    }
    row |= {"inputs": {"x": 0.1, "sex": sex} if sex else {"x": 0.1}, "attrs": {"region": "ns"[at % 2]}}
    return row | {"_sex": sex or "(missing)", "_said": said, "_truth": truth, "_label": None}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workbench, list[dict[str, Any]]]]:
    config = CONFIG + 'group_by = ["inputs.sex", "region, sex"]\n'
    with workbench(write_project(tmp_path_factory.mktemp("groups"), config=config)) as made:
        stream: list[dict[str, Any]] = []
        for block in range(24):
            records = [drawn(block, at) for at in range(30)]
            told = [{k: v for k, v in one.items() if not k.startswith("_")} for one in records]
            made.feed(told, after_s=20)
            for one in records:
                one["_us"] = made.now_us
            stream += records
            late = [one for one in stream if RNG.random() < 0.2]
            for one in late:
                one["_label"] = one["_truth"]
            made.label({one["id"]: one["_label"] for one in late})
            if block == 9:
                made.work()
                made.restart()
        made.work()
        yield made, stream


def counted(
    made: Workbench, *, attribute: str = "sex", positive: str = "1", version: str | None = None, **asked: Any
) -> tuple[CountedGroups, SeriesReport]:
    given = SeriesRequest(now_us=made.now_us + 1, **asked)
    with made.engine.connect() as connection:
        return groups_json(connection, GroupCut("toy", attribute, positive, version), given)


def of_records(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float, float, int]]:
    columns = {"inputs.sex": [one["_sex"] for one in rows], "outputs.label": [one["_said"] for one in rows]}
    batch = Batch.from_columns(columns, model="m")
    found = list(group_metrics(batch, by="sex").rates)
    known = [at for at, one in enumerate(rows) if one["_label"] is not None]
    if known:
        labels = {"label.label": np.array([rows[at]["_label"] for at in known])}
        labelled = group_metrics(batch.take(np.array(known)).with_columns(labels), by="sex")
        found += labelled.without(("selection_rate",)).rates
    return {(one.metric, one.group): (one.value, one.low, one.high, one.rows) for one in found}


def test_rates_of_each_step_and_version_are_those_of_its_records(bench: Any) -> None:
    made, rows = bench
    _, report = counted(made, step_us=MINUTE_US)
    starts = [int(datetime.fromisoformat(text).timestamp() * 1e6) for text in report["start"]]
    for version in ("7", "8"):
        own = [one for one in rows if one["version"] == version]
        for at, start in enumerate(starts):
            inside = [one for one in own if start <= one["_us"] < start + MINUTE_US]
            slow = of_records(inside) if inside else {}
            for row in report["series"]:
                if row["version"] != version or row["name"] == "sex":
                    continue
                value, low, high, n = slow.get((row["statistic"], row["name"]), (None, None, None, 0))
                assert row["records"][at] == n
                if n:
                    told = [row[name][at] for name in ("value", "low", "high")]
                    assert told == pytest.approx([value, low, high])
                else:
                    assert row["value"][at] is None


def test_gaps_of_the_newest_version_are_those_of_its_records(bench: Any) -> None:
    made, rows = bench
    found, report = counted(made)
    assert found.version == "8"
    assert found.metrics is not None
    own = of_records([one for one in rows if one["version"] == "8"])
    assert found.records == sum(one["version"] == "8" for one in rows)
    assert found.labelled == sum(one["version"] == "8" and one["_label"] is not None for one in rows)
    for metric in ("selection_rate", *LABELLED):
        values = {
            group: figure for (name, group), figure in own.items() if name == metric and figure[3] >= 30
        }
        gap = found.metrics.gap(metric)  # type: ignore[arg-type]
        shares = [figure[0] for figure in values.values()]
        assert gap.value == pytest.approx(max(shares) - min(shares))
        (row,) = [
            row for row in report["series"]
            if (row["version"], row["statistic"]) == ("8", f"{metric}_gap")
        ]  # fmt: skip
        assert row["whole"]["value"] == pytest.approx(gap.value)
        told = [row["whole"]["low"], row["whole"]["high"]]
        assert told == pytest.approx([gap.low, gap.high])


def test_combinations_are_groups_whatever_their_order(bench: Any) -> None:
    made, rows = bench
    for attribute in ("sex, region", "region, sex"):
        found, _ = counted(made, attribute=attribute, version="7")
        assert found.metrics is not None
        assert found.metrics.rows["region=n, sex=f"] == sum(
            one["version"] == "7" and (one["attrs"]["region"], one["_sex"]) == ("n", "f") for one in rows
        )
    with made.engine.connect() as connection:
        assert grouped_by(connection, "toy") == ["region, sex", "sex"]


def test_counts_join_to_hours_and_days_and_stay_the_same(bench: Any) -> None:
    made, _rows = bench
    before, _ = counted(made, version="7")
    now = made.now_us
    try:
        for days in (1, 20):
            made.now_us = START_US + days * DAY_US
            with write(made.engine) as connection:
                roll_up(connection, "toy", before_us=START_US, now_us=made.now_us)
            width = HOUR_US if days == 1 else DAY_US
            assert made.rows(f"SELECT count(*) FROM group_count WHERE minute_us % {width} != 0") == [(0,)]
            after, _ = counted(made, version="7", since_us=START_US - DAY_US, until_us=START_US + DAY_US)
            assert after.metrics is not None
            assert before.metrics is not None
            for one, other in zip(after.metrics.rates, before.metrics.rates, strict=True):
                assert one.value == pytest.approx(other.value)
                assert (one.group, one.metric, one.rows) == (other.group, other.metric, other.rows)
    finally:
        made.now_us = now


def test_erasing_everybody_of_a_group_takes_its_name(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, config=CONFIG + 'group_by = ["sex"]\n')) as made:
        told: list[dict[str, Any]] = [
            {"id": f"r{at}", "inputs": {"x": 0.1, "sex": "fm"[at % 2]}, "outputs": {"label": 1}}
            for at in range(8)
        ]
        made.feed([*told, {"id": "one", "inputs": {"x": 0.1, "sex": "own word"}, "outputs": {"label": 0}}])
        made.label({"one": 1, "r0": 1})
        made.work()
        found, quoted = Found(), Quotations([], [])
        found.ids["toy"] = {"one"}
        with write(made.engine) as connection:
            name_gone(connection, ErasureTarget(records=("one",)), found)
            erase_rows_of(connection, found, quoted)
        parts = made.rows(
            "SELECT part, is_labelled, sum(records) FROM group_count GROUP BY 1, 2 ORDER BY 1, 2"
        )
        assert parts == [("__other__", 0, 1), ("__other__", 1, 1), ("sex=f", 0, 4), ("sex=f", 1, 1),
                         ("sex=m", 0, 4)]  # fmt: skip


@pytest.mark.parametrize(
    ("group_by", "told"),
    [
        (["sex,"], "one column, or distinct"),
        (["sex, sex"], "distinct"),
        (["a, b", "b,a"], "each grouping once"),
    ],
)
def test_groupings_that_name_nothing_are_refused(group_by: list[str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ModelSettings.model_validate({"group_by": group_by})
