"""Engines of a model whose champion is an uploaded folder."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.monitor.engine.events import VersionLoad
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.launch import Launch
from outrider.monitor.engine.trunk_groups import opening_uploads
from outrider.monitor.engine.version_launch import DRIVER, files_of
from tests.dataops.model_kinds.adapters import write_lora
from tests.dataops.model_kinds.folders import NEEDS
from tests.forked import LIGHT, forks
from tests.requirements import require_package

from .engine_threads import EngineThread
from .test_hostile_uploads import folder_files, send_folder
from .test_uploads import World

FOLDER, ADAPTER, OWN = "2", "3", "4"
"""Uploaded and promoted; uploaded on top of it; made here from it."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made, folder = World(tmp_path_factory.mktemp("promoted")), tmp_path_factory.mktemp("folder")
    with forks(modules=(*LIGHT, *NEEDS)):
        yield from _promoted(made, folder)
    made.process.close()
    made.engine.dispose()


def _promoted(made: World, folder: Path) -> Iterator[World]:
    assert send_folder(made, folder_files(folder)).json()["version"] == FOLDER
    with write(made.engine) as connection:
        models.promote(connection, "m", FOLDER, by="ann", reason="", now_us=now_us())
    bert = require_package("transformers", "pip install outrider[hf]").BertForSequenceClassification
    adapter = write_lora(bert.from_pretrained(folder), folder / "adapter", seed=1)
    files = {path.name: path.read_bytes() for path in adapter.iterdir()}
    assert made.send(files, "adapter").json()["version"] == ADAPTER
    yield made


def stored(world: World, version: str) -> Source:
    return Source.from_json(world.version(version).source or "")


def test_adapter_of_an_uploaded_folder_answers_from_an_engine_that_opens_both(world: World) -> None:
    texts = Batch.from_columns({"inputs.text": np.array(["a text", "text ."], dtype=object)}, model="m")
    base, adapted = (predict(texts)["probs"] for predict in world.predictors("m", FOLDER, ADAPTER))
    assert not np.allclose(base, adapted)


@pytest.mark.skipif(DRIVER.exists(), reason="processes with a CUDA driver are not confined")
def test_engine_of_a_promoted_folder_may_open_the_versions_that_it_began_with(world: World) -> None:
    launches: list[Launch] = []

    def start(launch: Launch, sock: socket.socket) -> EngineThread:
        launches.append(launch)
        return EngineThread(launch, sock)

    def load(version: str) -> Launch:
        groups.load(("m", version))
        while not any(isinstance(event, VersionLoad) for event in groups.events()):
            groups.wait(1.0)
        return launches[-1]

    groups = EngineGroups(world.settings, world.engine, world.objects, start=start)
    try:
        shared = load(FOLDER)
        digests = {stored(world, FOLDER).kept["folder"], stored(world, ADAPTER).kept["adapter"]}
        assert {path.name for path in shared.readable or ()} == digests
        assert shared.environment is not None
        weights = world.objects.put(b"made here")
        with write(world.engine) as connection:
            models.register(
                connection, model="m", version=OWN, status="challenger", digest="d", weights=weights,
                source=replace(stored(world, FOLDER), adapted_from=f"m@{FOLDER}").to_json(), now_us=now_us(),
            )  # fmt: skip
        own = load(OWN)
        assert world.objects.path(weights).resolve() in (own.readable or ())
        assert groups.group(("m", FOLDER)) != groups.group(("m", OWN))
        with world.engine.connect() as connection:
            assert opening_uploads(connection) == {("m", FOLDER), ("m", ADAPTER), ("m", OWN)}
    finally:
        groups.stop()


def test_files_of_a_folder_of_links_are_those_that_they_lead_to(world: World, tmp_path: Path) -> None:
    blob, folder = tmp_path / "blob", tmp_path / "snapshot"
    blob.write_text(json.dumps({}))
    folder.mkdir()
    (folder / "config.json").symlink_to(blob)
    assert files_of(world.settings, Source("hf", str(folder)), None) == (folder, blob)
