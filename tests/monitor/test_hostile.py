"""The corpus of hostile assertions over a real journal, worker, host and page: each harms only itself."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.host.shared_state import SharedState
from outrider.monitor.views.overview.reader import AssertionView, read_overview
from tests.end_to_end.service import CONFIG, write_project

from .hostile_corpus import CORPUS, WITNESSES, hostile_file
from .workbench import workbench

FLAGS = "SELECT id, assertion, record_id, severity, evidence FROM flag ORDER BY id"


@dataclass(frozen=True)
class Seen:
    """What was left behind by one stream."""

    flags: list[tuple[Any, ...]]
    strikes: dict[str, tuple[str, str]]
    on_page: dict[str, AssertionView]
    records: int
    cursors: list[tuple[Any, ...]]


def stream(start: int) -> list[dict[str, Any]]:
    return [
        {"id": f"r{n}", "entity": f"e{n % 3}", "inputs": {"x": (n * 37 % 100) / 100}}
        for n in range(start, start + 20)
    ]


def project(folder: Path, files: dict[str, str]) -> Path:
    """The files of ``files`` before, and after the project's own."""
    config = write_project(folder)
    named = ", ".join(f'"{name}"' for name in (*files, "checks.py", "witnesses.py"))
    text = CONFIG.replace('assertions = ["checks.py"]', f"assertions = [{named}]")
    config.write_text(text + "\n[host]\nstrikes = 1\nmemory_bytes = 1073741824\n", encoding="utf-8")
    for name, content in (files | {"witnesses.py": WITNESSES}).items():
        (folder / name).write_text(content, encoding="utf-8")
    return config


def run(config: Path) -> Seen:
    with workbench(config, deadline_s=2.0) as bench:
        for start in (0, 20):
            bench.feed(stream(start), after_s=2.0)
            bench.work(timeout_s=100.0)
        strikes = bench.rows("SELECT assertion, reason, detail FROM strike")
        page = read_overview(bench.engine, "toy", now_us=bench.now_us)
        assert len({name for name, _, _ in strikes}) == len(strikes)  # suspended after the first
        return Seen(
            flags=bench.rows(FLAGS),
            strikes={name: (reason, detail) for name, reason, detail in strikes},
            on_page={one.name: one for one in page.assertions},
            records=bench.count("records"),
            cursors=bench.rows("SELECT slot, seq FROM cursor ORDER BY slot"),
        )


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run(project(tmp_path_factory.mktemp("quiet"), {}))


@pytest.fixture(scope="module")
def beset(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run(project(tmp_path_factory.mktemp("beset"), {"hostile.py": hostile_file()}))


def test_verdicts_of_the_others_are_what_they_were_without_them(quiet: Seen, beset: Seen) -> None:
    assert quiet.strikes == {}
    assert {flag[1] for flag in quiet.flags} >= {"too_high", "unsure", "flips", "sees_x", "sees_frame"}
    assert beset.flags == quiet.flags
    assert set(beset.strikes) <= set(CORPUS)


def test_every_record_is_judged_and_the_cursor_moves(quiet: Seen, beset: Seen) -> None:
    assert (beset.records, beset.cursors) == (quiet.records, quiet.cursors)
    assert beset.records == 40


@pytest.mark.parametrize("name", CORPUS)
def test_each_is_named_with_its_reason_or_gets_its_verdict(beset: Seen, name: str) -> None:
    hostile, shown = CORPUS[name], beset.on_page[name]
    if hostile.reason is None:
        assert name not in beset.strikes, beset.strikes[name]
        assert shown.last_strike is None
        return
    reason, detail = beset.strikes[name]
    assert reason == hostile.reason, detail
    assert hostile.told in detail
    assert shown.suspended_until_us > 0
    assert shown.last_strike is not None
    assert reason.replace("_", " ") in shown.last_strike.replace("_", " ")


def test_nothing_is_restored_where_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SharedState()
    state.restore()
    monkeypatch.setenv("OUTRIDER_CHANGED", "1")
    state.restore()
    assert "OUTRIDER_CHANGED" not in os.environ
