"""Uploaded endpoints: which may be named, what they are sent, and how the gate judges them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from outrider.addresses import origin_of
from outrider.assertions import Batch
from outrider.dataops.improvement import jobs
from outrider.dataops.model_kinds.endpoint import load_endpoint
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.uploads import job_tokens
from outrider.errors import ConfigError, ServerError
from outrider.monitor.engine.events import VersionLoad
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.sources import loadable_source
from tests import improved_projects
from tests.keyrings import owner_key
from tests.running_jobs import run_next
from tests.scripted_server import Asked, Reply, ScriptedServer, scripted_server

from .test_access import Server

SECRET = "the-owners-key"
ROWS = Batch.from_columns({"inputs.a": np.array([1.0, -1.0]), "inputs.b": np.zeros(2)}, model="m")


class Project(Server):
    """A project with the routes of its server, and its jobs run by hand."""

    def __init__(self, world: improved_projects.World) -> None:
        self.world = world
        self.process = ServerProcess(world.settings)
        self.process.writer.start()
        self.process.add_routers()
        self.owner = owner_key(world.settings.data_folder)

    def begin(self, url: str, key: str = "") -> httpx.Response:
        body = {"kind": "endpoint", "url": url}
        return self.ask("POST", "/v1/models/m/versions", key or self.owner, json=body)

    def upload(self, url: str, key: str = "") -> str:
        """Version of an address."""
        begun = self.begin(url, key)
        assert begun.status_code == 201, begun.text
        done = self.ask("POST", begun.json()["complete"], key or self.owner, json={})
        assert done.status_code == 201, done.text
        version: str = done.json()["version"]
        return version

    def champion(self, version: str) -> None:
        """Promote by hand."""
        with write(self.world.context.engine) as connection:
            models.promote(connection, "m", version, now_us=now_us(), reason="by hand", by="ann")


@contextmanager
def project(folder: Path, config: str) -> Iterator[Project]:
    with improved_projects.world(folder, config, "m") as world:
        made = Project(world)
        try:
            yield made
        finally:
            made.process.close()


def predictions(asked: Asked) -> Reply:
    """Answer of a V1 model that says yes to all."""
    rows = len(json.loads(asked.body)["instances"])
    return Reply(json.dumps({"predictions": [{"label": "yes"}] * rows}).encode())


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(predictions) as found:
        yield found


def engine_failure(own: Project, version: str) -> str:
    """Reason for which the engine's process does not load a version; empty where it does."""
    groups = EngineGroups(own.world.settings, own.world.context.engine, own.world.objects)
    groups.load(("m", version))
    try:
        while True:
            for event in groups.events():
                if isinstance(event, VersionLoad):
                    return event.failure
            groups.wait(0.5)
    finally:
        groups.stop()


def config_of(
    *endpoints: str, more: str = "", champion: str = "http://127.0.0.1:1/v1/models/m:predict"
) -> str:
    return f"""
[models.m]
endpoint = "{champion}"
inputs = ["a", "b"]
classes = ["no", "yes"]
options = {{ deadline_s = 3.0 }}
[models.m.uploads]
endpoints = {json.dumps([origin_of(url)[1] for url in endpoints])}
{more}
"""


def test_upload_of_endpoint_is_refused_without_a_request_unless_the_configuration_names_it(
    tmp_path: Path, server: ScriptedServer
) -> None:
    with project(tmp_path, config_of("http://1.1.1.1:8000")) as own:
        for url in (server.url, "http://1.1.1.1/v1/models/m", "https://1.1.1.1/", "http://a.example:8000/"):
            refused = own.begin(f"{url}/v1/models/m:predict")
            assert refused.status_code == 422
            assert "is not allowed: [models.m.uploads] endpoints in the configuration lists" in refused.text
        for url in ("ftp://1.1.1.1:8000/", "http://u:p@1.1.1.1:8000/", "http://1.1.1.1:8000\\@a.example/"):
            refused = own.begin(url)
            assert (refused.status_code, refused.json()["field"]) == (422, "url")
        assert own.begin("http://1.1.1.1:8000/v1/models/m:predict").status_code == 201
    assert server.asked == []


@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v2/models/m", "/v1/chat/completions"])
def test_uploaded_endpoint_gets_neither_the_owners_key_nor_the_champions_options(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("OUTRIDER_MODEL_KEY", SECRET)
    monkeypatch.setenv("CHAMPIONS_KEY", SECRET)
    config = config_of(server.url, more="options = { deadline_s = 20.0 }").replace(
        "options = { deadline_s = 3.0 }", 'options = { deadline_s = 3.0, key_env = "CHAMPIONS_KEY" }'
    )
    with project(tmp_path, config) as own:
        version = own.upload(f"{server.url}{path}")
        stored = Source.from_json(own.world.version(version).source)
        assert (stored.options, stored.is_uploaded) == ({}, True)
        opened = loadable_source(own.world.settings, own.world.version(version))
        assert opened.options["deadline_s"] == 20.0
        with_answer = path.endswith(":predict")
        try:
            own.world.answers(version, ROWS)
        except (ServerError, ValueError):
            assert not with_answer  # the server speaks one of the three
    assert server.asked
    assert SECRET not in str(server.asked)
    assert all("authorization" not in asked.headers for asked in server.asked)


def test_uploaded_endpoint_gets_the_key_of_its_origin_alone(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCORER_KEY", "of-the-scorer")
    place = origin_of(server.url)[1]
    more = f'key_envs = {{ "{server.url}" = "SCORER_KEY" }}'
    with project(tmp_path, config_of(server.url, more=more)) as own:
        version = own.upload(f"{server.url}/v1/models/m:predict")
        own.world.answers(version, ROWS)
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer of-the-scorer"]
        assert engine_failure(own, version) == ""
        opened = own.world.settings.models["m"].uploads.source_options(f"https://{place}/v2/models/m")
    assert opened is not None
    assert opened["allowed"]["key_env"] is None  # another scheme: another origin


def test_uploaded_endpoint_is_asked_no_longer_once_the_configuration_forgets_it(
    tmp_path: Path, server: ScriptedServer
) -> None:
    url = f"{server.url}/v1/models/m:predict"
    with project(tmp_path, config_of(server.url)) as own:
        version = own.upload(url)
        own.champion(version)
        (tmp_path / "outrider.toml").write_text(config_of())
        own.world.settings = load_settings(tmp_path / "outrider.toml")
        with pytest.raises(ConfigError, match=r"an upload named it, and \[models\.\*\.uploads\] endpoints"):
            own.world.answers(version, ROWS)
        assert "an upload named it" in engine_failure(own, version)
        loadable_source(own.world.settings, own.world.version(version))  # it can be looked at all the same
    assert server.asked == []


def test_redirect_of_uploaded_endpoint_is_not_followed(tmp_path: Path) -> None:
    with scripted_server(predictions) as other:
        moved = Reply(status=307, headers={"location": f"{other.url}/v1/models/m:predict"})
        with (
            scripted_server(lambda _: moved) as server,
            project(tmp_path, config_of(server.url, other.url)) as own,
        ):
            version = own.upload(f"{server.url}/v1/models/m:predict")
            with pytest.raises(ServerError, match="status 307: redirects are not followed"):
                own.world.answers(version, ROWS)
            assert len(server.asked) == 1
        assert other.asked == []


def test_name_of_uploaded_endpoint_leads_to_public_addresses_and_named_networks_alone(
    server: ScriptedServer,
) -> None:
    port = server.server_port
    allowed: dict[str, Any] = {"place": f"localhost:{port}", "networks": [], "key_env": None}
    source = Source("endpoint", f"http://localhost:{port}/v1/models/m:predict", options={"allowed": allowed})
    source = replace(source, is_uploaded=True)
    with pytest.raises(ServerError, match=r"is not a public address \(\[models\.\*\.uploads\] networks"):
        load_endpoint(source)(ROWS)
    assert server.asked == []
    named = source.options["allowed"] | {"networks": ["127.0.0.0/8", "::1/128"], "place": "127.0.0.1:1"}
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:1, which alone may be asked"):
        load_endpoint(replace(source, options={"allowed": named}))(ROWS)
    assert server.asked == []


@pytest.mark.parametrize(
    ("uploads", "message"),
    [
        ('endpoints = ["scorer"]', "host:port expected, such as models.example:443, got 'scorer'"),
        ('endpoints = ["http://a.example:1"]', "host:port expected"),
        ('endpoints = ["0.0.0.0:1"]', "the address of one server expected, got 0.0.0.0:1"),
        ('networks = ["10.0.0.0/33"]', "a network such as 10.0.0.0/8 expected"),
        ('key_envs = { "https://a.example" = "A" }', "one of endpoints expected, got none"),
        ('endpoints = ["a.example:443"]\nkey_envs = { "a.example:443" = "A" }', "an http:// or https://"),
        (
            'endpoints = ["a.example:443"]\nkey_envs = { "https://a.example" = "OUTRIDER_MODEL_KEY" }',
            "a variable of its own expected, none of Outrider's, got OUTRIDER_MODEL_KEY",
        ),
        (
            'endpoints = ["a.example:443"]\nkey_envs = { "https://a.example" = "JUDGES" }',
            "got JUDGES, which is the key of models.m.judges.j.key_env",
        ),
        (
            'endpoints = ["a.example:443", "b.example:443"]\n'
            'key_envs = { "https://a.example" = "A", "https://b.example" = "A" }',
            "https://b.example:443: a variable of its own expected, got A, which is the key of a.example:443",
        ),
        ('options = { key_env = "A" }', "key_envs names the variable of each endpoint instead"),
    ],
)
def test_settings_of_uploads_that_cannot_be_are_refused(tmp_path: Path, uploads: str, message: str) -> None:
    judge = (
        '[models.m.judges.j]\nurl = "http://h"\nprompt = "?"\nanswer = { x = "number" }\nkey_env = "JUDGES"'
    )
    (tmp_path / "outrider.toml").write_text(f"[models.m.uploads]\n{uploads}\n{judge}")
    with pytest.raises(ConfigError) as refused:
        load_settings(tmp_path / "outrider.toml")
    assert message in str(refused.value)


def test_v2_endpoint_uploaded_by_job_token_is_judged_by_the_gate(tmp_path: Path) -> None:
    weights = {"champion": [[1.0, 0.0], [0.0, 0.0]], "uploaded": [[0.0, 0.0], [1.0, 0.0]]}
    with v2_server(weights) as server:
        here = f"{server.url}/v2/models"
        tensors = 'tensors = { x = ["a", "b"] }, scores = "logits"'
        config = f"""
[models.m]
endpoint = "{here}/champion"
inputs = ["a", "b"]
classes = ["no", "yes"]
options = {{ {tensors} }}
[models.m.uploads]
endpoints = ["{origin_of(here)[1]}"]
options = {{ {tensors} }}
[models.m.retrain]
enabled = true
trainer = "external"
held_out_share = 0.5
"""
        with project(tmp_path, config) as own:
            signs = np.where(np.arange(80) % 2 == 0, 1.0, -1.0)
            rows = Batch.from_columns(
                {"id": [f"r{n}" for n in range(80)], "inputs.a": signs, "inputs.b": np.zeros(80)}, model="m"
            )
            own.world.flag(rows, ["yes" if sign > 0 else "no" for sign in signs])
            job = own.world.retrain()
            assert job.status == jobs.WAITING, job.result
            with own.world.context.engine.connect() as connection:
                token = job_tokens.token_of(connection, job.id)
            version = own.upload(f"{here}/uploaded", token)
            judged = run_next(own.world.context)
            assert judged is not None
            assert judged.status == "done", judged.result
            assert own.world.version(version).status == "champion", judged.result["gate"]
            assert list(own.world.answers(version, ROWS)["label"]) == ["yes", "no"]
    paths = {asked.path for asked in server.asked}
    assert paths == {"/v2/models/champion/infer", "/v2/models/uploaded/infer"}


@contextmanager
def v2_server(weights: dict[str, list[list[float]]]) -> Iterator[ScriptedServer]:
    """Linear classifiers behind the Open Inference Protocol, by name."""

    def infer(asked: Asked) -> Reply:
        name = asked.path.split("/")[3]
        (tensor,) = json.loads(asked.body)["inputs"]
        x = np.array(tensor["data"]).reshape(tensor["shape"])
        logits = x @ np.array(weights[name]).T
        output: dict[str, Any] = {"name": "logits", "shape": list(logits.shape), "datatype": "FP64"}
        output["data"] = logits.ravel().tolist()
        return Reply(json.dumps({"model_name": name, "outputs": [output]}).encode())

    with scripted_server(infer) as server:
        yield server
