"""Benchmarks run only now and then: each is imported here, and each store is filled once, small."""

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import benchmarks
from benchmarks.dataops import pages, versions
from benchmarks.improvement import gate_histories
from benchmarks.monitoring import drift_tickets, profile, series, stated, year
from outrider.assertions.profiling import ProfileLayout
from outrider.dataops.state.database import open_database
from tests.databases import migrated

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    if not module.name.endswith("__main__")
)
FOLDER = Path(benchmarks.__path__[0])
ELSEWHERE = {
    "improvement.promotions": "tests/dataops/test_promotions.py fills it",
    "improvement.rollback": "a service fills it",
    "loop.throughput": "a service fills it",
}


def fill_series(folder: Path, limit: pytest.MonkeyPatch) -> None:
    for name, size in {"MINUTES": 3, "UNITS": 1, "UNIT_ROWS": 10, "READS": 1}.items():
        limit.setattr(series, name, size)
    limit.setattr(series, "ASSERTIONS", series.ASSERTIONS[:1])
    engine = migrated(folder / "state.db")
    series.fill(engine)
    series.read(engine)
    engine.dispose()
    for what in ("plain", "calls", "labels"):
        assert series.commit_seconds(folder / what, what) > 0


def fill_year(folder: Path, limit: pytest.MonkeyPatch) -> None:
    for name, size in {"MINUTE_ROWS": 20, "DAYS": 1, "KINDS": 1}.items():
        limit.setattr(year, name, size)
    engine = migrated(folder / "state.db")
    layout = ProfileLayout.fit(profile.traffic(200, seed=1))
    year.fill(engine, layout, year.payloads(layout))
    with engine.connect() as connection:
        year.restart(connection)
    engine.dispose()


def fill_drift_tickets(folder: Path, _: pytest.MonkeyPatch) -> None:
    engine = migrated(folder / "state.db")
    drift_tickets.Service(engine, 1).hour(0, None)
    engine.dispose()


def fill_stated(folder: Path, limit: pytest.MonkeyPatch) -> None:
    for name, size in {"ROWS": 40, "UNIT": 20, "COMMITS": 2, "RUNS": 1}.items():
        limit.setattr(stated, name, size)
    assert stated.commits(folder).value > 0


def fill_pages(folder: Path, limit: pytest.MonkeyPatch) -> None:
    for name, size in {"VERSIONS": 2, "ADDED": 3, "RELABELLED": 2, "REMOVED": 1, "QUARANTINED": 2}.items():
        limit.setattr(pages, name, size)
    migrated(folder / "state.db").dispose()
    pages.Dataset(folder).build(50)


def fill_versions(folder: Path, _: pytest.MonkeyPatch) -> None:
    migrated(folder / "state.db").dispose()
    store = versions.Store(folder)
    store.change(versions.rows_of(20, 1, "r"))
    assert store.read().rows == 20


def fill_gate_histories(_: Path, __: pytest.MonkeyPatch) -> None:
    with gate_histories.fresh_context() as context:
        table = gate_histories.rows_of(np.random.default_rng(0), "equal", (200, 10, 0.1))
        assert gate_histories.judged(context, 1, table)


FILLS: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "dataops.pages": fill_pages,
    "dataops.versions": fill_versions,
    "improvement.gate_histories": fill_gate_histories,
    "monitoring.drift_tickets": fill_drift_tickets,
    "monitoring.series": fill_series,
    "monitoring.stated": fill_stated,
    "monitoring.year": fill_year,
}


def test_every_benchmark_is_imported() -> None:
    assert len(MODULES) > 100
    for name in MODULES:
        importlib.import_module(name)


def test_every_benchmark_that_fills_a_store_is_filled_in_these_tests() -> None:
    fills = {
        ".".join(file.relative_to(FOLDER).with_suffix("").parts)
        for file in FOLDER.rglob("*.py")
        if any(name in file.read_text(encoding="utf-8") for name in (open_database.__name__, "migrated("))
    }
    assert fills == FILLS.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", FILLS)
def test_benchmark_fills_its_store(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FILLS[name](tmp_path, monkeypatch)
    capsys.readouterr()
