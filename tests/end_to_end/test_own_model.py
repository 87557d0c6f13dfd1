"""The newcomer's path: every command of examples/own_model/README.md and docs/events.md, run live."""

import contextlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides import as_a_terminal
from tests.requirements import require_program

from .walks import Walk, on_free_ports

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_model"
EVENTS = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
PORTS = ("8481", "8482")
"""Of the service and of the trainer, as the example has them."""


@pytest.fixture
def walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    require_program("curl", "apt-get install -y curl")
    as_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "200")
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "wine"
    ignored = shutil.ignore_patterns("__pycache__", "outrider-data", "*.onnx", "*.arrow", "webhook.secret")
    shutil.copytree(EXAMPLE, folder, ignore=ignored)
    with contextlib.closing(Walk(folder)) as found:
        yield found


def reporting_back() -> list[str]:
    """Commands of docs/events.md that report back, by their step."""
    section = EVENTS.split("\n## Report back\n")[1]
    found = re.findall(r"^ {7}(curl (?:.*\\\n)*.*)$", section, re.MULTILINE)
    return [textwrap.dedent(command) for command in found]


def one_line(command: str) -> str:
    return re.sub(r"\s*\\\n\s*", " ", command)


@pytest.mark.costly("a guide is followed to its end on a running service")
def test_a_newcomer_goes_once_round_with_a_model_of_their_own(walk: Walk) -> None:
    on_free_ports(walk.folder, PORTS)
    guide = (walk.folder / "README.md").read_text(encoding="utf-8")
    assert walk.follow(guide) == 17
    fetch, report, verdicts, promote = reporting_back()
    ran = one_line((walk.folder / "retrain.sh").read_text(encoding="utf-8"))
    assert one_line(fetch) in ran
    assert one_line(report) in ran
    service = re.search(r"SERVICE=(\S+)", guide)
    assert service is not None
    event = {"SERVICE": service[1], "MODEL": "wine", "VERSION": "2"}
    event["KEY"] = (walk.folder / "outrider-data" / "key").read_text(encoding="utf-8").strip()
    event["URL"] = f"{service[1]}/v1/datasets/wine-flagged/versions/1/rows"
    assert walk.ended(fetch, **event).returncode == 0
    assert '"outcome":"passed"' in walk.ended(verdicts, **event).stdout
    assert '"status":"champion"' in walk.ended(promote, **event).stdout
    refused = walk.ended(fetch, **event | {"KEY": "or_wrong"})
    assert refused.returncode != 0
    assert "401" in refused.stderr
