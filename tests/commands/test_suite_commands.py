"""``outrider test import``, ``export``, ``examples``, ``--predictions`` and ``--save-failed``."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from outrider.behavioral_tests.prediction_files import read_predictions
from outrider.errors import ConfigError

from .test_test_command import call, project  # noqa: F401 - a fixture

CHECKLIST = {
    "suite": "small",
    "name": 'a "name" with spaces',
    "type": "INV",
    "capability": "c",
    "expectation": {"kind": "inv", "scope": "pairwise", "params": {"tolerance": 0.1}},
    "aggregate": "all_except_first",
    "cases": [{"inputs": ["a", "b"]}, {"inputs": ["c", "d", "e"]}],
    "release_sample": [1],
}


def told(*arguments: str) -> Any:
    code, text = call("test", *arguments, "--json")
    assert code == 0
    return json.loads(text)


def test_a_checklist_suite_is_imported(project: Path) -> None:  # noqa: F811
    (project / "small.jsonl.gz").write_bytes(gzip.compress(json.dumps(CHECKLIST).encode()))
    found = told("import", "small.jsonl.gz", "-o", "behavior/small.suite.json")
    assert found == {
        "file": "behavior/small.suite.json",
        "tests": 1,
        "cases": 2,
        "examples": 5,
        "left_out": {},
    }
    assert told("import", "small.jsonl.gz", "--released", "-o", "r.suite.json")["examples"] == 3
    with pytest.raises(ConfigError, match=r"a suite file is called NAME\.suite\.json"):
        call("test", "import", "small.jsonl.gz", "-o", "small.json")
    code, text = call("test", "--model", "model.py:predict", "--json")
    assert code == 1  # of the toy suite beside it
    assert {test["name"] for test in json.loads(text)["tests"]} == {
        "test_marks",
        "test_case",
        CHECKLIST["name"],
    }


def test_a_python_suite_is_exported_and_fails_the_same(project: Path) -> None:  # noqa: F811
    assert told("export", "behavior/test_toy.py", "-o", "toy.suite.json")["tests"] == 2
    both = [
        json.loads(call("test", path, "--model", "model.py:predict", "--json")[1])["matrix"]
        for path in ("behavior/test_toy.py", "toy.suite.json")
    ]
    assert both[0] == both[1]
    assert both[0]["marks"]["MFT"]["failures"] == 1
    _, text = call("test", "behavior", "toy.suite.json", "--model", "model.py:predict", "--json")
    assert {test["suite"] for test in json.loads(text)["tests"]} == {"test_toy", "toy"}


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.csv", "answers.parquet", "answers.txt"])
def test_predictions_stand_in_for_a_model(project: Path, name: str) -> None:  # noqa: F811
    asked = told("examples", "-o", "asked.jsonl")
    assert asked["examples"] == 7
    rows = [json.loads(line) for line in (project / "asked.jsonl").read_text().splitlines()]
    assert rows[0] == {"suite": "test_toy", "test": "test_marks", "id": "0", "inputs": {"text": "hi!"}}
    label = [int(row["inputs"]["text"].endswith("!")) for row in rows]
    frame = pd.DataFrame([{"id": row["id"], "inputs.text": row["inputs"]["text"]} for row in rows])
    frame = frame.assign(label=label)
    match Path(name).suffix:
        case ".jsonl":
            lines = [json.dumps(row | {"label": said}) for row, said in zip(rows, label, strict=True)]
            (project / name).write_text("\n".join(lines) + "\n")
        case ".csv":
            frame.to_csv(project / name, index=False)
        case ".parquet":
            frame.to_parquet(project / name)
        case _:
            (project / name).write_text("".join(f"{said} {1 - said} {said}\n" for said in label))
    code, text = call("test", "--predictions", name, "--json")
    assert code == 1
    assert {test["name"]: test["failures"] for test in json.loads(text)["tests"]} == {
        "test_marks": 1,
        "test_case": 0,
    }


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["1"] * 6, "7 predictions expected.*got 6.*outrider test examples"),
        (["1 0.5", "1", *["1 0.5"] * 5], "line 2: a label and 1 probabilities expected"),
        (["1 0.5", "1 x", *["1 0.5"] * 5], "numbers expected in column 2"),
    ],
)
def test_predictions_that_do_not_fit_are_named(
    project: Path,  # noqa: F811
    lines: list[str],
    told: str,
) -> None:
    (project / "p.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=told):
        call("test", "--predictions", "p.txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.csv", "label,probs[0],probs[1]\nNone,NaN,0.9\nNA,0.2,0.8\n"),
        ("p.txt", "None 0.1 0.9\nNA 0.2 0.8\n"),
    ],
)
def test_a_class_may_be_called_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_predictions(tmp_path / name)
    assert found["label"].tolist() == ["None", "NA"]
    assert found["probs"][:, 1].tolist() == [0.9, 0.8]


def test_the_first_prediction_for_another_text_is_named(project: Path) -> None:  # noqa: F811
    call("test", "examples", "-o", "asked.csv")
    frame = pd.read_csv(project / "asked.csv").assign(label=1)
    frame.loc[2, "inputs.text"] = "hum"
    frame.to_csv(project / "p.csv", index=False)
    with pytest.raises(ConfigError, match=r"prediction 3: inputs.text 'ho' expected .*test_marks.*got 'hum'"):
        call("test", "--predictions", "p.csv")


def test_failed_cases_alone_are_kept(project: Path) -> None:  # noqa: F811
    code, _ = call("test", "--model", "model.py:predict", "--save-failed", "failed.suite.json")
    assert code == 1
    kept = json.loads((project / "failed.suite.json").read_text())
    assert [(test["name"], test["cases"]) for test in kept["tests"]] == [
        ("test_marks", [{"id": "2", "inputs": ["ho"], "label": 1}])
    ]


def test_what_is_wrong_with_a_file_or_an_address_is_said_in_one_line(project: Path) -> None:  # noqa: F811
    cut = gzip.compress(b'{"label": 1}\n' * 1000)[:40]
    for name in ("cut.jsonl.gz", "cut.csv.gz"):
        (project / name).write_bytes(cut)
    with pytest.raises(ConfigError, match=r"cut\.jsonl\.gz is no whole gzip file: .*ended before"):
        call("test", "import", "cut.jsonl.gz", "-o", "new.suite.json")
    for name in ("cut.jsonl.gz", "cut.csv.gz"):
        with pytest.raises(ConfigError, match=rf"{name}: .*ended before"):
            call("test", "--predictions", name)
    asked = ("--endpoint", "ftp://nowhere", "--model", "m", "--prompt", "more", "--label", "1")
    assert call("test", "generate", *asked, "-o", "new.suite.json")[0] == 2
    assert not (project / "new.suite.json").exists()
