"""Suites of a model, as its configuration names them."""

import socket
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.monitor.host.process import LoadingReport, ModelCode
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.trainer.evidence import suite_evidence
from outrider.monitor.trainer.suites import compare_all, model_suites

SUITE = 'from outrider.behavioral_tests import MFT\ntest_zero = MFT(cases=[{"x": 0.0}], labels=0)\n'


def test_tests_that_could_not_be_told_apart_are_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    files = ("a/test_m.py", "b/test_m.py")
    for file in files:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(SUITE, encoding="utf-8")
    settings = Settings(base=tmp_path, models={"m": ModelSettings(behavior=files)})
    with pytest.raises(ConfigError, match="both have a test 'test_zero' in a suite 'test_m'"):
        model_suites(settings, "m")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        (error,) = ModelCode(settings, settings.models["m"], LoadingReport(ours, {})).errors
    assert error == "b/test_m.py: test test_zero of suite test_m stands in a/test_m.py too; rename one"
    (tmp_path / "b/test_m.py").rename(tmp_path / "b/test_n.py")
    named = Settings(base=tmp_path, models={"m": ModelSettings(behavior=("a/test_m.py", "b/test_n.py"))})
    assert [suite.name for suite in model_suites(named, "m")] == ["test_m", "test_n"]


def test_a_folder_stands_for_the_suites_in_it_for_the_host_as_for_the_gate(tmp_path: Path) -> None:
    for file in ("behavior/test_m.py", "behavior/deep/test_n.py"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(SUITE, encoding="utf-8")
    settings = Settings(base=tmp_path, models={"m": ModelSettings(behavior=("behavior",))})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        code = ModelCode(settings, settings.models["m"], LoadingReport(ours, {}))
    assert code.errors == []
    assert code.suites == {"behavior/deep/test_n.py": 1, "behavior/test_m.py": 1}
    assert {suite.name for suite in model_suites(settings, "m")} == {"test_m", "test_n"}


ON_HELD_OUT = """
from outrider.behavioral_tests import INV, MFT, perturb
test_same = INV(perturb=perturb.tabular.flip("sign", {"+": "-"}), capability="symmetry")
test_zero = MFT(cases=[{"sign": "+"}, {"sign": "-"}], labels=2)
"""


def test_failing_held_out_rows_are_told_to_nobody(tmp_path: Path) -> None:
    (tmp_path / "test_m.py").write_text(ON_HELD_OUT, encoding="utf-8")
    settings = Settings(base=tmp_path, models={"m": ModelSettings(behavior=("test_m.py",))})
    suites = model_suites(settings, "m")
    rows = Batch.from_records([{"id": f"h{n}", "inputs": {"sign": "+"}} for n in range(20)], model="m")

    def predict(batch: Batch) -> dict[str, Any]:
        return {"label": (batch.column("inputs.sign") == "+").astype(int)}

    found = compare_all(suites, predict, predict, cases=rows, seed=0, pause=lambda: None)
    outcomes = {row.test: row.challenger for row in found.rows}
    symmetry, zero = outcomes["test_same"], outcomes["test_zero"]
    assert symmetry is not None
    assert (symmetry.error, symmetry.failures, symmetry.examples) == ("", 20, ())
    assert zero is not None
    assert len(zero.examples) == 2
    told = {suite.test: suite.examples for suite in suite_evidence(found)[0]}
    assert told["test_same"] == ()
    assert len(told["test_zero"]) == 2
