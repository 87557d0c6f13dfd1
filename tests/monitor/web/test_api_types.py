"""Every answer of the API has a type in /openapi.json, and the bodies of a whole service are of it."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.dataops.state import tables
from outrider.dataops.state.database import write
from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings
from tests.comparison_reports import report
from tests.declared_bodies import check, path_of
from tests.keyrings import logged_in

from .sample import MODEL, add, build

OPERATIONS = Path(__file__).parents[1] / "recorded" / "operation_ids.txt"
CONFIG = """
[server]
port = 0
[storage]
folder = "data"
min_free_bytes = 0
[models.digits]
predictor = "model.py:predict"
inputs = ["image"]
assertions = ["checks.py", "learned.py"]
[models.digits.columns]
"inputs.image" = "tensor(8, 8)"
"inputs.note" = "string"
[models.digits.uploads]
endpoints = ["1.1.1.1:80"]
[models.digits.retrain]
enabled = true
mode = "suggest"
[models.digits.retrain.triggers]
alerts = ["Drift"]
[models.digits.judges.clear]
predictor = "judge.py:judge"
reads = ["outputs.label"]
answer = { verdict = ["clear", "unclear"] }
"""
ALERTS = {
    "version": "4",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": name, "model": MODEL},
            "startsAt": "2026-01-05T10:00:00Z",
            "fingerprint": "c0ffee",
        }
        for name in ("Drift", "Other")
    ],
}
"""A notification of Alertmanager: one alert that the model's triggers name, and one that they do not."""
GETS = {
    "/healthz": "/healthz",
    "/readyz": "/readyz",
    "/v2": "/v2",
    "/v2/health/live": "/v2/health/live",
    "/v2/health/ready": "/v2/health/ready",
    "/v2/models/{name}": "/v2/models/digits",
    "/v2/models/{name}/ready": "/v2/models/digits/ready",
    "/v1/quarantine": "/v1/quarantine?model=digits",
    "/v1/columns": "/v1/columns?model=digits",
    "/v1/records": "/v1/records?model=digits",
    "/v1/fleet": "/v1/fleet",
    "/v1/models/{model}/drift": "/v1/models/digits/drift?reference=7d",
    "/v1/models/{model}/alarms": "/v1/models/digits/alarms",
    "/v1/models/{model}/slices": "/v1/models/digits/slices?outcome=flagged",
    "/v1/flags": "/v1/flags?model=digits&limit=1000",
    "/v1/flags/{model}/{flag_id}": "/v1/flags/digits/FLAG",
    "/v1/records/{model}/{record_id}": "/v1/records/digits/RECORD",
    "/v1/assertions": "/v1/assertions?model=digits",
    "/v1/assertions/{model}/{name}": "/v1/assertions/digits/inv_shift",
    "/v1/suites": "/v1/suites?model=digits",
    "/v1/overview": "/v1/overview",
    "/v1/models": "/v1/models",
    "/v1/models/{model}/history": "/v1/models/digits/history",
    "/v1/models/{model}/profile": "/v1/models/digits/profile",
    "/v1/models/{model}/versions/champion": "/v1/models/digits/versions/champion",
    "/v1/models/{model}/versions/{version}": "/v1/models/digits/versions/1",
    "/v1/models/{model}/versions/{version}/weights": "",
    "/v1/models/{model}/triggers": "/v1/models/digits/triggers",
    "/v1/models/{model}/watch": "/v1/models/digits/watch",
    "/v1/lineage/{model}": "/v1/lineage/digits",
    "/v1/datasets": "/v1/datasets",
    "/v1/datasets/{name}/tags": "/v1/datasets/digits-flagged/tags",
    "/v1/datasets/{name}/versions/{number}": "/v1/datasets/digits-flagged/versions/newest",
    "/v1/datasets/{name}/versions/{number}/provenance": "/v1/datasets/digits-flagged/versions/1/provenance",
    "/v1/datasets/{name}/versions/{number}/rows": "",
    "/v1/datasets/{name}/diff": "/v1/datasets/digits-flagged/diff?old=1&new=1",
    "/v1/rejected": "/v1/rejected",
    "/v1/retrains": "/v1/retrains",
    "/v1/retrains/{job}": "/v1/retrains/job-1",
    "/v1/retrains/{job}/task": "/v1/retrains/job-1/task",
    "/v1/retrains/{job}/datasets/{which}": "",
    "/v1/retrains/{job}/champion/{name}": "",
    "/v1/uploads/{upload}": "",
    "/v1/gates": "/v1/gates",
    "/v1/suites/{model}/matrix": "/v1/suites/digits/matrix",
    "/v1/suites/{model}/outcomes/{version}/{suite}/{test}": "/v1/suites/digits/outcomes/OUTCOME",
    "/v1/label-requests": "/v1/label-requests?status=all",
    "/v1/models/{model}/estimates": "/v1/models/digits/estimates",
    "/v1/overlaps": "/v1/overlaps?model=digits",
    "/v1/reviews": "/v1/reviews",
    "/v1/incidents": "/v1/incidents?status=all",
    "/v1/agreement": "/v1/agreement?model=digits",
    "/v1/report": "/v1/report?model=digits",
    "/v1/jobs": "/v1/jobs?state=open",
    "/v1/jobs/{job}": "/v1/jobs/job-0",
    "/v1/judges": "/v1/judges?model=digits",
    "/v1/pauses": "/v1/pauses",
    "/v1/keys": "/v1/keys?revoked=true",
    "/v1/sessions": "/v1/sessions",
    "/v1/log": "/v1/log?limit=1",
    "/v1/fairness": "/v1/fairness?model=digits&by=device&positive=3",
    "/v1/models/{model}/performance": "/v1/models/digits/performance?by=slice",
    "/v1/models/{model}/series": "/v1/models/digits/series?versus=previous",
    "/v1/weak-labels": "/v1/weak-labels?model=digits",
    "/v1/proposals": "/v1/proposals?model=digits",
    "/v1/erasures": "/v1/erasures",
    "/v1/erasures/{erasure}": "",
    "/v1/comparisons": "/v1/comparisons",
    "/v1/comparisons/{comparison}": "/v1/comparisons/COMPARISON",
}
"""An address for every operation that reads; none where the sample keeps no file to send."""


class Api:
    """The whole application of the intake process over the sample, without its processes."""

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir()
        sample = build(folder / "data", blocks=6, rows=20)
        with write(sample.engine) as connection:
            add(
                connection, tables.WeakLabelRow, id="w1", model=MODEL, record_id="r", flag_id="f",
                assertion="track_agrees", revision="1", slot="champion", kind="replace", field="label",
                element=0, value="[1]", confidence=0.5, seq=1, row=0, ts_us=1,
            )  # fmt: skip
        sample.journal.close()
        sample.engine.dispose()
        (folder / "outrider.toml").write_text(CONFIG)
        (folder / "judge.py").write_text("def judge(batch):\n    return {}\n")
        self.intake = ServerProcess(load_settings(folder / "outrider.toml"))
        self.intake.writer.start()
        self.intake.add_routers()
        self.key = (folder / "data" / "key").read_text().strip()
        self.document: dict[str, Any] = self.ask("GET", "/openapi.json").json()

    def open_session(self) -> str:
        """Id of a new session of the owner."""
        logged_in(self.intake.keyring, self.key)
        return self.intake.keyring.list_sessions()[0].row.id

    def ask(self, method: str, path: str, json: object = None) -> httpx.Response:
        async def send() -> httpx.Response:
            headers = {"authorization": f"Bearer {self.key}"}
            transport = httpx.ASGITransport(self.intake.app)
            async with httpx.AsyncClient(transport=transport, headers=headers) as client:
                return await client.request(method, f"http://test{path}", json=json)

        return asyncio.run(send())

    def checked(self, method: str, path: str, json: object = None, *, status: int = 200) -> Any:
        """A body that is as it was declared."""
        answer = self.ask(method, path, json)
        assert answer.status_code == status, f"{method} {path}: {answer.text}"
        template = path_of(self.document, method, path.partition("?")[0])
        assert template is not None
        check(self.document, answer, template)
        return answer.json()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = Api(tmp_path_factory.mktemp("api"))
    yield made
    made.intake.close()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def is_typed(document: dict[str, Any], schema: dict[str, Any]) -> bool:
    """Whether a body's schema says more than that it is an object."""
    schema = resolved(document, schema)
    if "anyOf" in schema:
        return all(is_typed(document, each) for each in schema["anyOf"])
    return bool(schema.get("properties")) or schema.get("type") not in ("object", "array", None)


def test_every_operation_types_its_bodies(api: Api) -> None:
    bodies = 0
    for method, path, operation in operations(api.document):
        taken = {code: each for code, each in operation["responses"].items() if code.startswith("2")}
        assert taken, f"{method} {path} has no answer"
        for code, answer in taken.items():
            if code == "204":
                continue
            for kind, content in answer["content"].items():
                bodies += 1
                assert is_typed(api.document, content["schema"]), f"{method} {path}: {code} {kind}"
    assert bodies > 55


def test_operation_ids_are_unique_and_stay_what_they_are(api: Api) -> None:
    found = [operation["operationId"] for _, _, operation in operations(api.document)]
    assert len(set(found)) == len(found)
    assert sorted(found) == OPERATIONS.read_text(encoding="utf-8").split()


def test_names_of_types_are_plain(api: Api) -> None:
    """Two classes of one name would be told apart by their modules, in every generated client."""
    assert [
        name for name in api.document["components"]["schemas"] if not name.isidentifier() or "__" in name
    ] == []


def test_types_of_objects_are_described_in_words(api: Api) -> None:
    """A dataclass without a docstring describes itself by its signature."""
    schemas = api.document["components"]["schemas"]
    assert [
        name
        for name, schema in schemas.items()
        if "properties" in schema and not re.match(r"[A-Z][a-z']*\b[^(]", schema.get("description", ""))
    ] == []


@pytest.mark.costly("every route is asked, and its answer held against what it declares")
def test_every_operation_that_reads_answers_as_declared(api: Api) -> None:
    assert {path for method, path, _ in operations(api.document) if method == "GET"} == set(GETS)
    flags = api.checked("GET", GETS["/v1/flags"])["flags"]
    assert len(flags) > 20
    matrix = api.checked("GET", GETS["/v1/suites/{model}/matrix"])
    row = next(row for row in matrix["rows"] if any(cell["outcome"] for cell in row["cells"].values()))
    version = next(name for name, cell in row["cells"].items() if cell["outcome"])
    names = {
        "COMPARISON": api.checked("POST", "/v1/comparisons", report(), status=201)["id"],
        "FLAG": flags[0]["id"],
        "RECORD": flags[0]["record_id"],
        "OUTCOME": f"{version}/{row['suite']}/{row['test']}",
    }
    for path, address in GETS.items():
        for name, value in names.items():
            address = address.replace(name, value)
        if path == "/v1/records":
            assert api.ask("GET", address).headers["content-type"] == "application/vnd.apache.arrow.stream"
        elif address:
            api.checked("GET", address)


def test_operations_that_change_something_answer_as_declared(api: Api) -> None:
    flag = api.checked("GET", "/v1/flags?model=digits")["flags"][0]
    assertion = f"/v1/assertions/{MODEL}/{flag['assertion']}"
    record = {"model": MODEL, "id": "new", "inputs": {"image": [[0.0] * 8] * 8}, "outputs": {"label": 3}}
    changes: list[tuple[str, object, int]] = [
        ("/v1/records", [record, record | {"id": "odd", "inputs": 1}], 202),
        ("/v1/labels", [{"model": MODEL, "id": "new", "label": {"label": 3}}], 202),
        ("/v1/label-requests", {"model": MODEL, "budget": 3}, 201),
        ("/v1/reviews", {"flag": flag["id"], "is_error": True}, 201),
        (f"{assertion}/suspend", {"for_s": 60}, 200),
        (f"{assertion}/suspend", {}, 200),
        (f"{assertion}/resume", {}, 200),
        ("/v1/incidents/inc_2", {"action": "mute", "for_s": 60}, 200),
        ("/v1/comparisons", report(), 201),
        ("/v1/pauses", {"what": "shadow", "model": MODEL}, 201),
        ("/v1/pauses", {"what": "shadow"}, 201),
        ("/v1/pauses/resume", {"what": "shadow", "model": MODEL}, 200),
        ("/v1/pauses/resume", {"what": "shadow"}, 200),
        ("/v1/keys", {"name": "anna", "scopes": ["label"], "records_per_s": 5}, 201),
        ("/v1/keys/anna/limits", {"bytes_per_day": 10}, 200),
        ("/v1/keys/anna/revoke", {}, 200),
        ("/v1/logins", {}, 201),
        (f"/v1/sessions/{api.open_session()}/end", {}, 200),
        ("/v1/retrains", {"model": MODEL, "candidate": "4"}, 202),
        ("/v1/jobs/job-0/cancel", {}, 200),
        ("/v1/jobs/job-0/retry", {}, 202),
        ("/v1/alerts", ALERTS, 202),
        (f"/v1/models/{MODEL}/versions/4/retire", {"reason": "it hangs"}, 200),
        (f"/v1/models/{MODEL}/promote", {"version": "4", "force": True, "reason": "seen"}, 200),
        (f"/v1/models/{MODEL}/rollback", {}, 200),
    ]
    for path, body, status in changes:
        api.checked("POST", path, body, status=status)
    endpoint = {"kind": "endpoint", "url": "http://1.1.1.1/v2/models/m"}
    upload = api.checked("POST", f"/v1/models/{MODEL}/versions", endpoint, status=201)["upload"]
    api.checked("GET", f"/v1/uploads/{upload}")
    api.checked("POST", f"/v1/uploads/{upload}/complete", {}, status=201)
    kept = api.checked("GET", "/v1/comparisons")["comparisons"][0]["id"]
    api.checked("DELETE", f"/v1/comparisons/{kept}", None, status=200)
    api.checked("PUT", f"/v1/comparisons/{kept}", report() | {"ended": "running"}, status=200)
    for path in (
        "/v1/label-requests",
        "/v1/reviews",
        "/v1/incidents",
        "/v1/retrains",
        "/v1/jobs",
        "/v1/models/digits/triggers",
        "/v1/models",
        "/v1/pauses",
        "/v1/keys?revoked=true",
        "/v1/log",
    ):
        api.checked("GET", path)


def test_a_body_that_is_not_as_declared_is_found(api: Api) -> None:
    answer = api.ask("GET", "/v1/pauses")
    odd = httpx.Response(200, json=answer.json() | {"more": 1}, request=answer.request)
    with pytest.raises(AssertionError, match="more"):
        check(api.document, odd, "/v1/pauses")
    less = httpx.Response(200, json={}, request=answer.request)
    with pytest.raises(AssertionError, match="'pauses' is a required property"):
        check(api.document, less, "/v1/pauses")


def test_problems_are_declared_as_they_are(api: Api) -> None:
    answer = api.ask("GET", "/v1/flags?model=nobody")
    declared = api.document["paths"]["/v1/flags"]["get"]["responses"]["default"]["content"]
    assert list(declared) == [answer.headers["content-type"]]
    schema = resolved(api.document, next(iter(declared.values()))["schema"])
    assert set(schema["required"]) <= set(answer.json())
