"""``outrider drift``: files, datasets and spans of time, the table, the page and the exit code."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.commands.drift_windows import read_window, records_between
from outrider.data_files import TableOptions
from outrider.errors import ConfigError
from tests.requirements import require_data


def people(seed: int, rows: int = 3000, shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(41 + shift, 9, rows),
            "city": rng.choice(["Bern", "Genf"], rows),
            "score": rng.random(rows),
        }
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    paths = tmp_path / "before.parquet", tmp_path / "same.csv", tmp_path / "moved.parquet"
    people(0).to_parquet(paths[0])
    people(1).to_csv(paths[1], index=False)
    people(2, shift=16.0).to_parquet(paths[2])
    return paths


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["drift", *arguments], env={"COLUMNS": "200"})
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


def test_files_without_drift_end_with_0(files: tuple[Path, Path, Path]) -> None:
    code, text = run("--reference", str(files[0]), "--current", str(files[1]), "--outputs", "score")
    assert code == 0
    assert "no drift shown in 3 columns (3,000 reference and 3,000 current records)" in text
    assert "output" in text


def test_a_drifted_column_comes_first_and_ends_with_1(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "drift.html"
    code, text = run(
        *("--reference", str(files[0]), "--current", str(files[2])),
        *("--unit", "age=years", "--report", str(page), "--json"),
    )
    assert code == 1
    told = json.loads(text)
    assert told["columns"][0]["column"] == "age"
    assert "median 4" in told["columns"][0]["words"]
    assert told["columns"][0]["words"].split(";")[0].endswith("years")
    assert told["windows"]["reference"] == str(files[0])
    html = page.read_text(encoding="utf-8")
    assert "http" not in html.replace("http-equiv", "")
    assert "<script" not in html
    assert html.count('class="distribution"') == 2


def test_what_columns_say_is_escaped_on_the_page(tmp_path: Path) -> None:
    evil = '<img src=x onerror="alert(1)">'
    frame = pd.DataFrame({evil: np.random.default_rng(0).choice([evil, "b"], 5000)})
    frame.to_parquet(tmp_path / "a.parquet")
    page = tmp_path / "drift.html"
    path = str(tmp_path / "a.parquet")
    assert run("--reference", path, "--current", path, "--report", str(page))[0] == 0
    html = page.read_text(encoding="utf-8")
    assert "<img" not in html
    assert "&lt;img" in html


def test_a_column_that_is_gone_ends_with_6(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    people(1).drop(columns="age").to_parquet(tmp_path / "less.parquet")
    code, text = run("--reference", str(files[0]), "--current", str(tmp_path / "less.parquet"))
    assert code == 6
    assert "age, current: numbers expected as in the reference, the column is gone" in text


def test_a_file_out_of_order_is_sorted_by_its_times(tmp_path: Path) -> None:
    frame = people(0, 100).assign(ts=np.arange(100)[::-1])
    frame.to_parquet(tmp_path / "a.parquet")
    found = read_window(
        str(tmp_path / "a.parquet"), model=None, ts="ts", config=None, options=TableOptions(times=True)
    )
    assert found.data.column("ts").to_pylist() == list(range(100))


def test_records_of_a_span_are_those_from_its_begin_on_in_their_order() -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    times = [begin + timedelta(hours=hour) for hour in (5, 1, 3, 0, 4)]
    kind = pa.timestamp("us", tz="UTC")
    pages = [
        pa.table({"ts": pa.array(times[:3], kind), "inputs.x": [5, 1, 3]}),
        pa.table({"ts": pa.array(times[3:], kind), "inputs.x": [0.5, 4.5], "inputs.y": ["a", "b"]}),
    ]
    found = records_between(pages, begin + timedelta(hours=1), begin + timedelta(hours=5))
    assert found.column("inputs.x").to_pylist() == [1.0, 3.0, 4.5]
    assert found.column("inputs.y").to_pylist() == [None, None, "b"]
    assert records_between(pages, None, None).num_rows == 5
    assert records_between(pages, begin + timedelta(days=1), None).num_rows == 0
    mixed = [*pages, pa.table({"ts": pa.array(times[:1], kind), "inputs.x": ["text"]})]
    with pytest.raises(ConfigError, match="columns of one type expected"):
        records_between(mixed, None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nowhere.parquet", "there is no such file"),
        ("yesterday..", "ISO 8601 or -1h expected, got 'yesterday'"),
    ],
)
def test_windows_that_are_none_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        read_window(text, model=None, ts=None, config=tmp_path / "outrider.toml", options=TableOptions())


def test_arguments_that_are_wrong_are_refused(files: tuple[Path, Path, Path]) -> None:
    one, two = str(files[0]), str(files[1])
    with pytest.raises(ConfigError, match="column 'nope' expected"):
        run("--reference", one, "--current", two, "--column", "nope")
    assert run("--reference", one, "--current", two, "--unit", "age")[0] == 2
    with pytest.raises(ConfigError, match="has no column when"):
        run("--reference", one, "--current", two, "--ts", "when")


@pytest.mark.parametrize(
    ("case", "words"), [("all_null", "nulls 0 % → 100 %"), ("constant", "new categories `FR` 100 %")]
)
def test_values_never_seen_end_with_1_where_other_columns_are_undecided(case: str, words: str) -> None:
    folder = require_data("public_cases")
    paths = (str(folder / f"{case}_{window}.parquet") for window in ("ref", "cur"))
    code, text = run("--reference", next(paths), "--current", next(paths))
    assert code == 1
    assert words in text


def test_window_longer_than_a_third_of_a_reference_in_runs_ends_with_6_and_says_so(tmp_path: Path) -> None:
    steps = np.repeat([0.0, 1.0, 0.3, 0.7, 1.6, 1.4], 500) + np.random.default_rng(0).normal(size=3000)
    paths = tmp_path / "before.parquet", tmp_path / "now.parquet"
    for path, values in zip(paths, (steps[:1500], steps[1500:]), strict=True):
        pd.DataFrame({"x": values}).to_parquet(path)
    code, text = run("--reference", str(paths[0]), "--current", str(paths[1]))
    assert code == 6
    assert "reference: about 4,500 records expected, 3 times as many as are held against it" in text
    assert "current is distributed otherwise by 0." in text


def test_ts_names_the_hours_that_are_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    at = pd.date_range("2026-03-02", periods=20_000, freq="60s")
    data = pd.DataFrame({"at": at, "x": rng.normal(size=len(at)) + 3 * (at.hour >= 18)})
    paths = tmp_path / "before.parquet", tmp_path / "now.parquet"
    data[:18_720].to_parquet(paths[0])
    data[18_720:].sample(frac=1.0, random_state=0).to_parquet(paths[1])
    code, text = run("--reference", str(paths[0]), "--current", str(paths[1]), "--ts", "at")
    assert "the same hours of 13 days" not in text  # 21 hours are no short window
    assert code != 1
    data[18_720:18_900].to_parquet(paths[1])
    code, text = run("--reference", str(paths[0]), "--current", str(paths[1]), "--ts", "at")
    assert code == 0
    assert "the same hours of 13 days" in text
