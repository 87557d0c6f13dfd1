"""docs/shared-trunks.md: its configuration, followed from check-config over retraining to one trunk."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from outrider.assertions import Batch
from outrider.commands.trunk_facts import trunk_facts
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import load_architecture
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.training.trainers import train_version
from outrider.monitor.engine.asks import Ask, AskAnswer
from outrider.monitor.engine.client import EngineClient, Making
from outrider.monitor.engine.events import EngineEvent, VersionLoad
from outrider.monitor.engine.executor import LoadedVersion
from outrider.monitor.engine.launch import Launch
from outrider.monitor.engine.trunks.trunk import trunks_of
from outrider.monitor.registry.declared_shares import wrong_shares
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.sources import challenger_source, source_of
from tests.databases import migrated_for
from tests.soak import PATIENCE_S
from tests.training_rows import mapped, task

PAGE = Path(__file__).parents[2] / "docs" / "shared-trunks.md"
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Linear(4, 64)
        self.head = torch.nn.Linear(64, 2)

    def forward(self, x):
        return self.head(scaled(self.stem(x)))

def scaled(x):
    return torch.relu(x) * 2

def build():
    return Net()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The configuration of the page, with its model and weights that keep what it declares."""
    torch.set_num_threads(1)
    found = re.search(r"\*\*`outrider.toml`\*\*\n\n```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "outrider.toml").write_text(found[1], encoding="utf-8")
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    base = load_architecture("model.py:build", tmp_path)().state_dict()
    for name in ("mood", "wide", "topic"):
        save_file(base | {"head.bias": torch.rand(2)}, tmp_path / f"{name}.safetensors")
    return load_settings(tmp_path / "outrider.toml")


def test_the_message_of_the_page_is_what_check_config_says(settings: Settings) -> None:
    assert list(wrong_shares(settings)) == []
    save_file(
        load_architecture("model.py:build", settings.base)().state_dict(), settings.path("wide.safetensors")
    )
    shown = re.search(r"```\n(mood@wide: .*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    # The first tensor that differs is told, whichever of the stem's two it is in the file.
    pattern = (
        re.escape(" ".join(shown[1].split())).replace("…", "[0-9a-f]{12}").replace("weight", "(weight|bias)")
    )
    assert re.fullmatch(pattern, next(wrong_shares(settings)))


def retrained(settings: Settings) -> bytes:
    """What the loop makes of the champion with `trains` as on the page."""
    source = source_of(settings, "mood")
    assert source is not None
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(32, 4)).astype(np.float32)
    labels = [source.classes[number] for number in rng.integers(0, 2, 32)]
    rows = mapped(settings.base / "rows.arrow", {"inputs.vector": vectors, "label.label": labels})
    given = task(
        settings.base, rows, champion="mood@1", source=source, epochs=2, learning_rate=0.1, batch_rows=8,
        weights=settings.path("mood.safetensors").read_bytes(), trains=settings.models["mood"].retrain.trains,
    )  # fmt: skip
    weights = train_version(given, lambda _: None).weights
    assert weights is not None
    return weights


def test_tenants_challengers_and_what_the_loop_makes_go_on_one_trunk(settings: Settings) -> None:
    champion = source_of(settings, "mood")
    topic = source_of(settings, "topic")
    assert champion is not None
    assert topic is not None
    made: dict[tuple[str, str], tuple[Source, Path | bytes]] = {
        ("mood", "1"): (champion, settings.path("mood.safetensors")),
        ("mood", "wide"): (challenger_source(settings, "mood", "wide"), settings.path("wide.safetensors")),
        ("mood", "2"): (champion, retrained(settings)),
        ("topic", "1"): (topic, settings.path("topic.safetensors")),
    }
    loaded = {
        name: LoadedVersion(name, source, load_model(source, folder=settings.base, weights=weights))
        for name, (source, weights) in made.items()
    }
    assert trunks_of(loaded) == [tuple(made)]
    stems = {id(one.model.module.get_submodule("stem")) for one in loaded.values()}  # type: ignore[union-attr]  # runners
    assert len(stems) == 1, "the file was executed once for each version"


def test_doctor_says_what_versions_have_in_common(settings: Settings) -> None:
    settings.data_folder.mkdir()
    SqliteJournal(settings.journal_path, max_bytes=None).close()
    engine = migrated_for(settings)
    objects = LocalObjects(settings.data_folder / "objects")
    champion = source_of(settings, "mood")
    assert champion is not None
    contents = {"1": settings.path("mood.safetensors").read_bytes(), "2": retrained(settings)}
    sources = {"1": champion.to_json(), "2": challenger_source(settings, "mood", "wide").to_json()}
    with write(engine) as connection:
        for version, status in (("1", "champion"), ("2", "challenger")):
            digest = objects.put(contents[version])
            models.register(
                connection, model="mood", version=version, status=status, digest=digest, weights=digest,
                now_us=1, source=sources[version],
            )  # fmt: skip
    engine.dispose()
    assert trunk_facts(settings.base / "outrider.toml") == {
        "mood@2": "1,280 of 1,800 bytes of weights are those of mood@1"
    }


def test_the_engine_process_runs_the_trunk_once_and_tells_what_that_saves(settings: Settings) -> None:
    champion = source_of(settings, "mood")
    assert champion is not None
    woken, objects = Event(), LocalObjects(settings.data_folder / "objects")
    client = EngineClient("mood@1", Launch(settings.base), deadline_s=lambda _: 60.0, wake=woken.set)
    batch = Batch.from_columns({"inputs.vector": np.random.default_rng(0).random((6, 4))}, model="mood")
    news: list[EngineEvent] = []

    def until(is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, (news, client.stats)
            woken.clear()
            news.extend(client.poll())
            woken.wait(0.05)

    try:
        sources = {"1": champion, "wide": challenger_source(settings, "mood", "wide")}
        for version, name in (("1", "mood"), ("wide", "wide")):
            digest = objects.put(settings.path(f"{name}.safetensors").read_bytes())
            weights = objects.folder / digest[:2] / digest
            client.load(("mood", version), Making(sources[version], weights, batch))
        until(lambda: sum(isinstance(one, VersionLoad) for one in news) == 2)
        assert {one.failure for one in news if isinstance(one, VersionLoad)} == {""}
        for number in range(3):
            client.submit(Ask(number, "mood", ("1", "wide"), batch))
            until(lambda n=number: sum(isinstance(a, AskAnswer) and a.number == n for a in news) == 2)  # type: ignore[misc]  # bound
        until(lambda: client.stats.get("head_forwards", 0) >= 6)
        assert client.stats["trunk_forwards"] == 3
        assert client.stats["bytes_alone"] - client.stats["bytes"] == 4 * (4 * 64 + 64 + 64 * 2), (
            "stem and head.weight"
        )
    finally:
        client.stop()
    found = {(a.number, a.version): a.outputs for a in news if isinstance(a, AskAnswer)}
    for version, name in (("1", "mood"), ("wide", "wide")):
        alone = load_model(champion, folder=settings.base, weights=settings.path(f"{name}.safetensors"))
        outputs = found[2, version]
        assert outputs is not None
        np.testing.assert_allclose(outputs["probs"], as_predictor(alone)(batch)["probs"], rtol=1e-5)
