"""Datasets that settings name: what is not stored is told by check-config, the nearest name first."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.commands.model_checks import dataset_problems
from outrider.dataops.datasets import references
from outrider.dataops.datasets.erased import erase_rows
from outrider.dataops.state.database import write
from outrider.monitor.settings.config import load_settings
from tests.dataops.erased_world import World
from tests.end_to_end.service import CONFIG, outrider, write_project


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Dataset of two versions, the first of which is tagged."""
    (tmp_path / "outrider-data").mkdir()
    world = World(tmp_path / "outrider-data")
    for key in ("a", "b"):
        world.commit([key], dataset="toy-held")
    with write(world.engine) as connection:
        references.set_tag(connection, "toy-held", "final", "1", moves=False, now_us=1)
    yield world
    world.engine.dispose()


def problems(folder: Path, held_out: str, replay: str = "") -> list[str]:
    tables = f'[models.toy.gate]\nheld_out = "{held_out}"\n'
    tables += f'[models.toy.retrain]\nreplay = "{replay}"\n' if replay else ""
    return list(dataset_problems(load_settings(write_project(folder, config=CONFIG + tables)), "toy"))


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("toy-held@finale", "dataset 'toy-held' has no tag 'finale'; nearest: final"),
        ("toy-held@3", "dataset 'toy-held' has no version 3"),
        ("toy-hold", "no dataset 'toy-hold'; nearest: toy-held"),
        (f"toy-held@{'f' * 64}", f"dataset 'toy-held' has no version {'f' * 64}"),
        ("toy-held@2026-13-01", "'2026-13-01' is no time: 2026-11-01 or 2026-11-01T12:00 expected, UTC"),
        ("toy-held@1960-01-01", "toy-held' had no version then"),
    ],
)
def test_what_is_not_stored_is_told(world: World, reference: str, told: str) -> None:
    (found,) = problems(world.folder.parent, reference)
    assert found.startswith("gate.held_out: ")
    assert told in found
    (again,) = problems(world.folder.parent, "toy-held@final", replay=reference)
    assert again.startswith("retrain.replay: ")


@pytest.mark.parametrize(
    "reference", ["toy-held", "toy-held@final", "toy-held@2", "another", "another@final"]
)
def test_what_is_stored_or_may_come_is_no_problem(world: World, reference: str) -> None:
    assert problems(world.folder.parent, reference) == []


def test_a_digest_from_before_an_erasure_is_told_with_that_of_now(world: World) -> None:
    old = world.content()["toy-held@1"][0].digest
    assert problems(world.folder.parent, f"toy-held@{old}") == []
    erase_rows(world.engine, world.objects, ["a"])
    (found,) = problems(world.folder.parent, f"toy-held@{old}")
    assert f"toy-held@1 had digest {old} until 1 of its rows were erased" in found


def test_check_config_ends_with_it(world: World) -> None:
    problems(world.folder.parent, "toy-held@fnal")
    done = outrider(world.folder.parent, "check-config", "--no-run")
    assert done.returncode == 3
    assert "models.toy.gate.held_out: dataset 'toy-held' has no tag 'fnal'; nearest: final" in done.stderr
