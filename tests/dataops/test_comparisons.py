"""Kept comparisons: one file each, checked at the door, changed by labels alone."""

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from outrider.dataops.comparisons import FOLDER, ComparisonFound, Comparisons, read_report
from outrider.errors import OutriderError, ValidationRefused
from outrider.monitor.compare.labelled import relabelled
from tests.comparison_reports import report


def found(**changes: Any) -> ComparisonFound:
    return read_report(json.dumps(report() | changes).encode())


def test_a_report_is_kept_whole_and_once(tmp_path: Path) -> None:
    comparisons = Comparisons(tmp_path / "data")
    id_ = comparisons.keep(found(), now_us=5)
    kept = comparisons.read(id_)
    assert kept is not None
    assert (kept.kept_us, kept.report) == (5, json.loads(json.dumps(report())))
    assert comparisons.change(id_, lambda one: {**one, "seconds": 9.0})
    assert comparisons.keep(found(), now_us=6) == id_
    again = Comparisons(tmp_path / "data").read(id_)
    assert again is not None
    assert (again.kept_us, again.report["seconds"]) == (5, 9.0)


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        id_ = Comparisons(tmp_path / "data").keep(found(), now_us=1)
    finally:
        os.umask(before)
    for path in (tmp_path / "data", tmp_path / "data" / FOLDER, tmp_path / "data" / FOLDER / f"{id_}.json"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_the_newest_come_first_and_a_damaged_file_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    comparisons = Comparisons(tmp_path)
    assert comparisons.newest(10) == []
    ids = [comparisons.keep(found(seconds=float(at)), now_us=at) for at in range(4)]
    for at, id_ in enumerate(ids):
        os.utime(tmp_path / FOLDER / f"{id_}.json", (at, at))
    assert [one.id for one in comparisons.newest(2)] == [ids[3], ids[2]]
    (tmp_path / FOLDER / "0123456789abcdef.json").write_text("{")
    (tmp_path / FOLDER / ".part-x").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert len(comparisons.newest(10)) == 4
    assert "0123456789abcdef.json holds no comparison" in caplog.text
    with pytest.raises(
        OutriderError, match=r"comparisons/0123456789abcdef\.json holds no comparison .*: remove it"
    ):
        comparisons.read("0123456789abcdef")


@pytest.mark.parametrize("id_", ["", "../../key", "0" * 15, "0" * 16, "A" * 16, "0" * 16 + "\n"])
def test_an_id_of_nothing_is_nothing(id_: str, tmp_path: Path) -> None:
    comparisons = Comparisons(tmp_path)
    assert comparisons.read(id_) is None
    assert not comparisons.change(id_, lambda one: one)


def broken(*path: str | int, value: Any) -> bytes:
    body: Any = json.loads(json.dumps(report()))
    there = body
    for name in path[:-1]:
        there = there[name]
    there[path[-1]] = value
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"notes": ' + b"[" * 100_000, "notes"),
        (b'{"records": {"a": ' + b"[" * 100_000, "recursion"),
        (b"{}", "missing required field"),
        (broken("margin", value=0.0), "margin: Expected `float` > 0.0"),
        (broken("margin", value=float("nan")), "invalid character"),
        (broken("candidates", 0, "verdict", value="<b>"), "candidates[0].verdict: Invalid enum value"),
        (broken("candidates", 1, "records", value="many"), "candidates[1].records: Expected `int`"),
        (broken("candidates", 0, "examples", 0, "production", value="\ud800"), "surrogate"),
        (broken("candidates", 1, "to_label", 0, "right", value="a"), "to_label[0].right"),
        (broken("candidates", value=[]), "candidates: Expected `array` of length >= 1"),
    ],
)
def test_what_is_no_report_is_refused_by_its_field(body: bytes, said: str) -> None:
    with pytest.raises(ValidationRefused, match="no report of outrider compare --json") as refused:
        read_report(body)
    assert said in str(refused.value)


def labelled(one: ComparisonFound) -> ComparisonFound:
    pair = one["candidates"][1]["to_label"][0]
    return relabelled(one, "faulty", pair["id"], "both")  # type: ignore[return-value]  # JSON


def test_the_oldest_go_beyond_the_bound_but_none_with_labels(tmp_path: Path) -> None:
    comparisons = Comparisons(tmp_path, most=3)
    ids = [comparisons.keep(found(seconds=float(at)), now_us=at) for at in range(3)]
    assert comparisons.change(ids[0], labelled)
    more = [comparisons.keep(found(seconds=float(at)), now_us=at) for at in range(3, 6)]
    assert {one.id for one in comparisons.newest(10)} == {ids[0], *more}


def test_a_comparison_is_removed_and_its_labels_only_where_that_is_said(tmp_path: Path) -> None:
    comparisons = Comparisons(tmp_path)
    plain, other = (comparisons.keep(found(seconds=at), now_us=1) for at in (1.0, 2.0))
    assert comparisons.change(other, labelled)
    assert comparisons.remove(plain)
    assert not comparisons.remove(plain)
    with pytest.raises(ValidationRefused, match="has 1 labels, which go with it"):
        comparisons.remove(other)
    assert comparisons.remove(other, has_labels=True)
    (tmp_path / FOLDER / "0123456789abcdef.json").write_text("{")
    assert comparisons.remove("0123456789abcdef")
    assert not [*(tmp_path / FOLDER).iterdir()]
    assert not comparisons.remove("../state")
