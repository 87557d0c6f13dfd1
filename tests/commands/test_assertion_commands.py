"""``outrider assertions``: learn, accept and catalogue on files; list stays what it does unasked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from outrider.assertions import load_assertions
from outrider.cli import app
from outrider.commands.api import Api
from outrider.commands.learning import _traffic
from outrider.errors import ConfigError, OutriderError


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.integers(18, 70, 500),
        "sex": rng.choice(["f", "m"], 500),
        "who": np.arange(500) // 10,
    }
    pd.DataFrame(columns | {"score": rng.random(500).round(1)}).to_csv("reference.csv", index=False)
    return tmp_path


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    if isinstance(result.exception, OutriderError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


LEARN = ("assertions", "learn", "--from", "reference.csv", "--outputs", "score", "--entity", "who")


def test_one_command_learns_and_writes_a_file_that_the_service_loads(reference: Path) -> None:
    found = run(*LEARN, "--write", "assertions/learned.py")
    assert (found["records"], found["written"]) == (500, "assertions/learned.py")
    loaded = load_assertions(reference / "assertions" / "learned.py")
    assert {judge.name for judge in loaded} == {one["name"] for one in found["proposals"]}
    assert {"age_range", "score_range", "sex_categories"} <= {judge.name for judge in loaded}
    assert run(*LEARN, "--write", "assertions/learned.py")["written"] is None


def test_a_column_that_drifts_is_said_beside_its_rule(reference: Path) -> None:
    steady, moved = np.arange(500) % 50 / 10, np.arange(500) / 70.0
    pd.DataFrame({"steady": steady, "moved": moved}).to_csv("moving.csv", index=False)
    arguments = ("assertions", "learn", "--from", "moving.csv", "--max-fire-rate", "1")
    drift = {one["name"]: one["drift"] for one in run(*arguments)["proposals"]}
    assert (drift["steady_range"], drift["moved_range"].keys()) == ({}, {"inputs.moved"})
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}).output
    assert "rest on columns that drift within the reference" in shown
    assert f"inputs.moved by {drift['moved_range']['inputs.moved']:.2f}" in shown


def test_proposals_are_saved_and_accepted_by_name(reference: Path) -> None:
    run(*LEARN, "--save", "proposals.json")
    with pytest.raises(ConfigError, match=r"outrider\.toml"):
        run("assertions", "accept", "proposals.json")
    (reference / "outrider.toml").write_text('[models.m]\nassertions = ["checks.py"]\n', encoding="utf-8")
    once = run("assertions", "accept", "proposals.json", "age_range")
    assert once == {"file": str(reference / "checks.py"), "accepted": ["age_range"], "changed": True}
    assert run("assertions", "accept", "proposals.json", "age_range")["changed"] is False
    assert [judge.name for judge in load_assertions(reference / "checks.py")] == ["age_range"]
    with pytest.raises(OutriderError, match="no proposal shoe_size; there are age_range"):
        run("assertions", "accept", "proposals.json", "shoe_size")


def test_what_is_no_file_of_proposals_is_a_config_error(reference: Path) -> None:
    for text in ("no", "[1]", '[{"factory": "eval", "name": "x"}]'):
        (reference / "proposals.json").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match="proposal"):
            run("assertions", "accept", "proposals.json", "--to", "x.py")
    assert not (reference / "x.py").exists()


def test_columns_that_the_file_lacks_are_named(reference: Path) -> None:
    with pytest.raises(ConfigError, match="no column nobody; there are age, sex, who, score"):
        run("assertions", "learn", "--from", "reference.csv", "--entity", "nobody")


def test_the_catalogue_is_written(reference: Path) -> None:
    found = run("assertions", "catalogue", "--to", "page.md")
    assert "low_margin" in found["assertions"]
    assert "### low_margin" in (reference / "page.md").read_text(encoding="utf-8")


def test_list_may_be_left_out(reference: Path) -> None:
    for arguments in ([], ["list"], ["churn"], ["list", "churn"]):
        with pytest.raises(ConfigError, match=r"outrider\.toml"):
            run("assertions", *arguments)
    assert "learn" in CliRunner().invoke(app, ["assertions", "--help"]).output


class Pages:
    """Stored records in two blocks of one schema behind one of another."""

    def __init__(self) -> None:
        self.pages = [
            {"inputs.x": [1.0]},
            {"inputs.x": [1.0, 2.0], "outputs.y": [0, 1]},
            {"inputs.x": [3.0], "outputs.y": [1]},
        ]

    def get_page(self, path: str, *, model: str, after: int) -> tuple[bytes, dict[str, str]]:
        assert (path, model) == ("/v1/records", "m")
        if after == len(self.pages):
            return b"", {"x-outrider-next": str(after)}
        sink = pa.BufferOutputStream()
        table = pa.table(self.pages[after])
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes(), {"x-outrider-next": str(after + 1)}


def test_stored_traffic_is_read_from_its_newest_schema_and_end() -> None:
    assert _traffic(cast(Api, Pages()), "m", 100).column("inputs.x").tolist() == [1.0, 2.0, 3.0]
    assert _traffic(cast(Api, Pages()), "m", 2).column("inputs.x").tolist() == [2.0, 3.0]


def test_help_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'great_expectations', 'pandas', 'pyarrow', 'sqlalchemy'}"
    code = f"import sys, outrider.commands.assertions; assert not {heavy} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def _labelled(path: Path) -> None:
    passage = "The refund arrives within five working days after the parcel has come back."
    grounded = [f"The refund arrives within five working days, order {n}." for n in range(25)]
    invented = [f"I love that shop! My uncle got {n} pounds at once in March." for n in range(25)]
    wrong = [False] * 25 + [True] * 25
    frame = pd.DataFrame({"answer": grounded + invented, "passages": passage, "invented": wrong})
    frame.loc[3, "passages"] = ""
    frame.to_csv(path, index=False)


def test_calibrate_prints_a_threshold_and_what_it_is_worth(tmp_path: Path) -> None:
    _labelled(tmp_path / "labelled.csv")
    found = run(
        *("assertions", "calibrate", "ungrounded", "--from", str(tmp_path / "labelled.csv")),
        *("--wrong", "invented"),
    )
    assert (found["examples"], found["wrong"], found["left_out"]) == (49, 25, 1)
    assert found["informative"]
    assert 0 < found["below"] < 1
    assert found["precision"]["value"] == found["recall"]["value"] == 1.0
    assert found["precision"]["low"] < 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("low_score", "--wrong", "invented"), "no threshold to calibrate in 'low_score'"),
        (("ungrounded", "--wrong", "bad"), "has no column bad; there are answer"),
        (("ungrounded", "--wrong", "answer"), "answer must be true or false"),
    ],
)
def test_calibrate_says_what_it_cannot_read(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    _labelled(tmp_path / "labelled.csv")
    with pytest.raises(ConfigError, match=message):
        run("assertions", "calibrate", *arguments, "--from", str(tmp_path / "labelled.csv"))


def test_learn_takes_the_unit_of_a_column(reference: Path) -> None:
    rooms = np.random.default_rng(0).normal(21.0, 1.5, 500)
    pd.DataFrame({"reading": rooms}).to_csv("rooms.csv", index=False)
    learn = ("assertions", "learn", "--from", "rooms.csv")
    assert "units" not in {one["kind"] for one in run(*learn)["proposals"]}
    (found,) = [
        one for one in run(*learn, "--unit", "reading=celsius")["proposals"] if one["kind"] == "units"
    ]
    assert "Kelvin for Celsius" in found["parameters"]["conversions"]
    for wrong, said in (("reading", "COLUMN=UNIT expected"), ("other=kg", "no column 'inputs.other'")):
        with pytest.raises(ConfigError, match=said):
            run(*learn, "--unit", wrong)
