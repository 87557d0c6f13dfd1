"""Commands about assertions, reviews and incidents against a service on loopback."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

import outrider
from outrider.cli import app
from outrider.commands.durations import seconds
from outrider.dataops.access.store import AccessStore
from outrider.errors import NotFound, OutriderError
from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.keyring import FileKey, Keyring
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from tests.monitor.services import every_app
from tests.monitor.web.sample import HOSTILE, MODEL, build
from tests.scopes import every_scope


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("service")
    sample = build(folder, blocks=22)
    storage = StorageSettings(folder=str(folder))
    model = ModelSettings(slice_by="device", group_by=["attrs.device"])
    settings = Settings(base=folder, storage=storage, models={MODEL: model})
    application = every_app(sample.engine, sample.journal, settings)
    keyring = Keyring(AccessStore(folder / "none.db"), [FileKey("owner", "key", ("admin",), "key")])
    gated: Any = KeyGate(application, keyring, routes=every_scope())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(gated, log_config=None, ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()
    sample.engine.dispose()
    sample.journal.close()


@pytest.fixture(autouse=True)
def service(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTRIDER_URL", url)
    monkeypatch.setenv("OUTRIDER_KEY", "key")


def run(*arguments: str, said: str = "") -> Any:
    """JSON that a command prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"], input=said)
    if isinstance(result.exception, OutriderError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(*arguments: str, said: str = "") -> str:
    result = CliRunner().invoke(app, [*arguments], input=said, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_fleet_shows_the_worst_model_first() -> None:
    (line,) = run("fleet")["models"]
    assert (line["model"], line["verdict"], line["about"]) == (MODEL, "critical", "track_agrees")
    assert sum(line["records"]) == 1100
    assert line["next_step"] in shown("fleet")


def test_assertions_are_listed_with_precision_and_state() -> None:
    listed = {row["name"]: row for row in run("assertions")["assertions"]}
    assert listed["margin_is_wide"]["precision"]["trials"] > 0
    text = shown("assertions", "list", MODEL)
    assert "suspended" in text
    assert " % (" in text


def test_one_assertion_is_shown_with_all_its_figures() -> None:
    found = run("assertions", "show", "margin_is_wide")
    assert found["assertion"]["detection"]["coverage"]["trials"] > 0
    text = shown("assertions", "show", "margin_is_wide", "--model", MODEL)
    for what in (
        "precision",
        "coverage",
        "false failures",
        "till-2",
        "lead over labels",
        "is active",
        "jaccard",
    ):
        assert what in text
    assert "deadline: no verdict after 2.0 s" in shown("assertions", "show", "image_is_lively")
    with pytest.raises(NotFound, match="has no assertion 'none'"):
        run("assertions", "show", "none")


def test_overlaps_are_shown_most_alike_first() -> None:
    found = run("assertions", "overlap")["overlaps"]
    assert [pair["jaccard"] for pair in found] == sorted((pair["jaccard"] for pair in found), reverse=True)
    assert "P(b|a)" in shown("assertions", "overlap")


def test_an_assertion_is_suspended_and_resumed() -> None:
    found = run("assertions", "suspend", "track_agrees", "--for", "2h", "--reason", "noise")
    assert found["suspension"] == "noise"
    assert "noise" in shown("assertions", "show", "track_agrees")
    assert run("assertions", "resume", "track_agrees")["suspended_until"] is None
    assert "until resumed: by hand" in shown("assertions", "suspend", "track_agrees")
    assert "active" in shown("assertions", "resume", "track_agrees")
    until = run("assertions", "suspend", "track_agrees", "--until", "2100-01-01T00:00:00Z")
    assert until["suspended_until"].startswith("2100-01-01")
    run("assertions", "resume", "track_agrees")


def test_flags_are_reviewed_one_after_another() -> None:
    waiting = run("review", "--assertion", "margin_is_wide", "--limit", "4", said="y\nn\ns\nq\n")["reviews"]
    assert [(row["is_error"], row["source"]) for row in waiting] == [(True, "human"), (False, "human")]
    again = run("review", "--assertion", "margin_is_wide", "--limit", "1", said="what\ny\n")["reviews"]
    assert again[0]["flag_id"] not in {row["flag_id"] for row in waiting}
    text = shown("review", "--limit", "1", said="")
    assert "Was the model wrong?" in text
    assert "outputs.score" in text
    assert "0 reviewed" in text


def test_one_flag_is_reviewed_without_questions() -> None:
    flag = run("flags", "--assertion", "inv_shift", "--limit", "1")["flags"][0]
    said = run("review", "--flag", flag["id"], "--answer", "n", "--note", "a shadow", "--source", "Ada")[
        "reviews"
    ]
    assert [(row["is_error"], row["note"], row["source"]) for row in said] == [(False, "a shadow", "Ada")]
    assert CliRunner().invoke(app, ["review", "--answer", "y"]).exit_code == 2
    hostile = run("flags", "--assertion", "no_bright_column", "--limit", "1000")["flags"]
    assert HOSTILE in {row["record_id"] for row in hostile}


def test_flags_of_a_name_that_nothing_has_name_the_nearest() -> None:
    missing = CliRunner().invoke(app, ["flags", "--assertion", "track_agree"])
    assert str(missing.exception).endswith("no assertion 'track_agree'; nearest: track_agrees")
    assert "no such flag of" in shown("flags", "--slot", "no such version")


def test_alarms_show_what_is_watched_and_end_with_1_while_an_incident_stands() -> None:
    result = CliRunner().invoke(app, ["alarms", "--model", MODEL], env={"COLUMNS": "250"})
    assert result.exit_code == 1
    assert f"{MODEL}: 1 incident open; " in result.output
    assert "inc_2: track_agrees has flagged" in result.output
    result = CliRunner().invoke(app, ["alarms", "--limit", "2", "--json"])
    (report,) = json.loads(result.stdout)["models"]
    assert (result.exit_code, len(report["streams"])) == (1, 2)
    assert report["streams"][0]["incident"] == "inc_2"


def test_incidents_are_listed_acknowledged_muted_and_resolved() -> None:
    assert [row["id"] for row in run("incidents")["incidents"]] == ["inc_2"]
    assert "track_agrees" in shown("incidents", MODEL, "--status", "all")
    assert run("incidents", "ack", "inc_2", "--note", "Ada")["details"]["history"][0]["by"] == "owner"
    assert "is muted until" in shown("incidents", "mute", "inc_2", "--for", "30m")
    with pytest.raises(OutriderError, match="a time to come"):
        run("incidents", "mute", "inc_2", "--until", "2020-01-01T00:00:00Z")
    assert run("incidents", "resolve", "inc_2")["note"] == "Ada; by a person"
    assert run("incidents", "list")["incidents"] == []


@pytest.mark.parametrize("text", ["", "soon", "5 weeks", "-3s", "0", "1e3"])
def test_a_span_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(OutriderError, match="90s, 30m, 2h or 1d expected"):
        seconds(text)


def test_groups_are_shown_with_intervals_and_gaps() -> None:
    asked = ["fairness", MODEL, "--by", "device", "--positive", "8"]
    found = run(*asked)
    assert [group["group"] for group in found["groups"]] == [f"device=till-{at}" for at in (1, 2, 3)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "device=till-2" in shown.output
    assert "selected: gap" in shown.output
    assert re.search("selected: gap .*[▁▂▃▄▅▆▇█·]", shown.output)


def test_groups_are_frames_in_a_notebook(url: str) -> None:
    frame = outrider.connect(url, "key").fairness(MODEL, by="device", positive="8")
    assert {"selection_rate", "selection_rate_gap", "selection_rate_ratio", "tpr"} <= {*frame["statistic"]}
    assert frame.equals(outrider.connect(url, "key").fairness(MODEL, positive="8"))
    own = frame[(frame["statistic"] == "selection_rate") & (frame["name"] == "device=till-1")]
    assert own["records"].sum() == frame.attrs["groups"][0]["records"]


def test_weak_slices_are_shown_with_what_was_not_searched() -> None:
    asked = ["slices", MODEL, "--outcome", "flagged"]
    found = run(*asked)
    assert found["slices"][0]["conditions"][0]["column"] == "attrs.device"
    text = shown(*asked)
    assert f"{MODEL}: " in text
    assert "flagged of" in text
    assert "attrs.device = till-" in text
    assert "not searched: inputs.image: " in text


def test_series_are_shown_with_a_sparkline() -> None:
    found = run("series", MODEL, "--measure", "records", "--measure", "flags", "--since", "2d")
    assert {row["measure"] for row in found["series"]} == {"records", "flags"}
    text = shown("series", MODEL, "--measure", "flags", "--versus", "previous")
    assert "flags track_agrees" in text
    assert re.search("[▁▂▃▄▅▆▇█]", text)
    assert run("series", MODEL, "--performance")["is_numeric"] is False
    assert CliRunner().invoke(app, ["series", MODEL, "--performance", "--name", "x"]).exit_code == 2
    with pytest.raises(OutriderError, match="whole minutes expected"):
        run("series", MODEL, "--step", "90")


def test_series_are_frames_in_a_notebook(url: str) -> None:
    service = outrider.connect(url, "key")
    frame = service.series(MODEL, measure=["records"], since="2020-01-01T00:00:00Z")
    assert frame["records"].sum() == 22 * 50
    assert str(frame["start"].dtype) == "datetime64[us, UTC]"
    assert service.performance(MODEL, since="2020-01-01T00:00:00Z")["measure"].unique().tolist() == [
        "labelled"
    ]
    assert service.series(MODEL, measure=["latency"]).empty


def test_groups_are_those_of_the_first_declared_grouping_by_default() -> None:
    assert run("fairness", MODEL, "--positive", "8") == run(
        "fairness", MODEL, "--by", "device", "--positive", "8"
    )


def test_the_report_has_the_gaps_of_groups(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    text = shown("report", MODEL, "--html", str(file))
    assert re.search(r"by device \(answer \S+, version 1\): selection_rate gap", text)
    assert "Groups by device" in file.read_text(encoding="utf-8")


def test_profile_shows_columns_of_live_records() -> None:
    found = run("profile")
    assert found["records"] == 1100
    assert found["bins_from"] == "the first 1,100 records of traffic"
    columns = {one["name"]: one for one in found["columns"]}
    assert sum(each["share"] for each in columns["outputs.label"]["categories"]) == pytest.approx(1.0)
    assert columns["outputs.score"]["quantiles"]["0.5"] > 0
    text = shown("profile", MODEL, "--since", "2h")
    assert "1,100 records from" in text
    assert "inputs.image#brightness" in text
    assert "no profile yet" in shown("profile", "--until", "2020-01-01T00:00:00Z")
    devices = [run("profile", "--slice", device)["records"] for device in found["slices"]]
    assert sum(devices) == 1100
    assert len(devices) > 1


def test_profile_of_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(OutriderError, match="since must be before until"):
        run("profile", "--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z")


def test_profile_shows_columns_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = "".join(f"{20 + n % 50},{'north' if n % 3 else 'south'}\n" for n in range(300))
    path.write_text(f"age,branch\n{rows}", encoding="utf-8")
    found = {one["name"]: one for one in run("profile", "--file", str(path))["columns"]}
    assert found["inputs.age"]["mean"] == pytest.approx(44.5)
    assert {one["name"]: one["weight"] for one in found["inputs.branch"]["categories"]} == {
        "north": 200, "south": 100,
    }  # fmt: skip
    assert "north: 66.7%" in shown("profile", "--file", str(path))
    with pytest.raises(OutriderError, match="no such file"):
        run("profile", "--file", str(tmp_path / "none.csv"))


def test_versions_are_listed_and_one_is_taken_out_of_the_shadow() -> None:
    found = run("models", MODEL)["models"]
    champion = next(row["version"] for row in found if row["status"] == "champion")
    challenger = next(row["version"] for row in found if row["status"] == "challenger")
    with pytest.raises(OutriderError, match="is champion, which cannot be retired: promote another"):
        run("models", "retire", f"{MODEL}@{champion}")
    retired = run("models", "retire", f"{MODEL}@{challenger}", "--reason", "it hangs")
    assert (retired["status"], retired["note"]) == ("retired", "retired by owner: it hangs")
    with pytest.raises(OutriderError, match="it is not in the shadow"):
        run("models", "retire", f"{MODEL}@{challenger}")
    assert "a version as NAME@V expected" in CliRunner().invoke(app, ["models", "retire", challenger]).output
