"""Keys, links and sessions of a real service, by its commands."""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import sync_playwright

from outrider.monitor.client import find_key
from tests.requirements import require_program
from tests.soak import PATIENCE_S, promised

from .service import Service, outrider, wait_until, write_project

COLUMNS_80 = 80


def address(service: Service) -> str:
    return str(service.client.base_url).rstrip("/")


def asks(service: Service, key: str, method: str = "GET", path: str = "/v1/models") -> httpx.Response:
    url = f"{address(service)}{path}"
    return httpx.request(method, url, headers={"authorization": f"Bearer {key}"}, json={}, timeout=PATIENCE_S)


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_keys_sessions_and_the_log_by_command(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with ExitStack() as browsers, Service(config) as service:
        url = address(service)
        made = service.run_command(
            "keys", "create", "--name", "anna", "--scope", "label", "--scope", "ingest"
        )
        anna = made["key"]
        assert asks(service, anna).status_code == 200
        refused = asks(service, anna, "POST", "/v1/models/toy/promote")
        assert refused.json()["detail"] == "key 'anna' lacks the scope promote"

        # A link of the start, on a line of its own, short enough for a terminal.
        said = service.log.read_text().splitlines()
        link = next(line for line in said if "/login?token=" in line)
        assert link.startswith(f"{url}/login?token=")
        assert len(link) <= COLUMNS_80
        assert any("this link works once, until " in line and "`outrider login`" in line for line in said)
        browser, guest = (
            browsers.enter_context(httpx.Client(timeout=PATIENCE_S)),
            browsers.enter_context(httpx.Client(timeout=PATIENCE_S)),
        )
        token = link.partition("token=")[2]
        assert browser.get(link).status_code == 200
        assert browser.post(f"{url}/login", data={"token": token}).status_code == 303
        assert browser.post(f"{url}/login", data={"token": token}).status_code == 401
        assert browser.get(f"{url}/sessions").status_code == 200

        # Another one at any time, with the rights of whoever asks.
        another = outrider(tmp_path, "login")
        assert another.returncode == 0, another.stderr
        assert another.stdout.strip().startswith(f"{url}/login?token=")
        assert len(another.stdout.splitlines()) == 1
        of_guest = another.stdout.strip().partition("token=")[2]
        assert guest.post(f"{url}/login", data={"token": of_guest}).status_code == 303
        sessions = service.run_command("sessions")["sessions"]
        assert [one["key"] for one in sessions] == ["owner", "owner"]

        ended = service.run_command("sessions", "end", sessions[0]["id"])
        assert ended["id"] == sessions[0]["id"]
        assert {browser.get(f"{url}/sessions").status_code, guest.get(f"{url}/sessions").status_code} == {
            200,
            401,
        }

        listed = {key["name"]: key for key in service.run_command("keys", "list")["keys"]}
        assert listed["anna"]["scopes"] == ["label", "ingest"]
        assert listed["anna"]["last_used"] > listed["anna"]["created"]
        assert anna not in str(listed)
        limited = service.run_command("keys", "limit", "anna", "--records-per-s", "5", "--bytes-per-day", "9")
        assert (limited["records_per_s"], limited["bytes_per_day"]) == (5.0, 9)
        record = {"model": "toy", "id": "q", "inputs": {"x": 0.1}}
        over = httpx.post(f"{url}/v1/records", json=record, headers={"authorization": f"Bearer {anna}"})
        assert over.status_code == 429

        service.run_command("keys", "revoke", "anna")
        began = time.monotonic()
        wait_until(lambda: asks(service, anna).status_code == 401, "the end of the key", service)
        assert time.monotonic() - began < promised(1.0)

        cookies = [f"outrider={one.cookies['outrider']}" for one in (browser, guest)]
        log = service.run_command("log")["writes"]
        actions = [row["action"] for row in reversed(log)]
        assert actions[0] == "POST /v1/keys"
        assert "POST /v1/keys/{name}/revoke" in actions
        assert actions.count("POST /login") == 2
        assert {row["key"] for row in log} == {"owner"}

    # Over a restart: revoked stays revoked, used stays used, sessions go on.
    with Service(config) as service:
        url = address(service)
        assert asks(service, anna).status_code == 401
        assert httpx.post(f"{url}/login", data={"token": token}).status_code == 401
        again = {httpx.get(f"{url}/sessions", headers={"cookie": one}).status_code for one in cookies}
        assert again == {200, 401}
        assert len(service.run_command("log")["writes"]) >= len(log)


def test_a_client_sends_with_the_key_that_can_do_no_more(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with Service(config) as service:
        sender = (service.folder / "key.ingest").read_text().strip()
        assert find_key(None, service.folder, sends=True) == sender
        assert find_key(None, service.folder) == (service.folder / "key").read_text().strip()
        script = (
            "from outrider.monitor.client import Client\n"
            "client = Client(model='toy')\n"
            "client.capture({'x': 0.95}, None, id='by-sender')\n"
            "client.flush(); client.close()\n"
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        service.wait_judged(1)
        used = {key["name"]: key["last_used"] for key in service.run_command("keys")["keys"]}
        assert used["ingest"] is not None
        assert asks(service, sender).status_code == 403


def test_a_host_on_the_command_line_closes_the_metrics_and_warns_without_tls(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with Service(config, arguments=["--host", "0.0.0.0"]) as service:
        url = address(service)
        assert httpx.get(f"{url}/metrics").status_code == 401
        assert service.client.get("/metrics").status_code == 200
        assert httpx.get(f"{url}/login", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{url}/healthz", headers={"host": "pod-7"}).status_code == 200
        assert "without TLS" in service.log.read_text()
    with Service(config) as service:
        assert httpx.get(f"{address(service)}/metrics").status_code == 200
        assert service.log.read_text().count("without TLS") == 1


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_browser_logs_in_works_and_is_sent_to_the_login_when_its_session_ends(tmp_path: Path) -> None:
    chromium = require_program("chromium", "apt-get install -y chromium")
    with Service(write_project(tmp_path)) as service, sync_playwright() as playwright:
        url = address(service)
        service.post([{"id": "a", "inputs": {"x": 0.95}}])
        service.wait_judged(1)
        key = service.run_command("keys", "create", "--name", "anna", "--scope", "read")["key"]
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(f"{url}/m/toy")
        page.fill("#key", "or_guess")
        page.click("button")
        page.wait_for_selector("text=This key is not known")
        page.fill("#key", key)
        page.click("button")
        page.wait_for_selector("text=Records judged")
        assert page.url == f"{url}/m/toy"
        page.goto(f"{url}/sessions")
        page.wait_for_selector("text=this one")
        page.goto(f"{url}/m/toy")
        service.run_command("keys", "revoke", "anna")
        page.wait_for_selector("#key")  # the page, which refreshes itself, says it by itself
        link = re.findall(r"http://\S+/login\?token=\S+", service.log.read_text())[0]
        page.goto(link)
        page.reload()
        page.click("button")
        page.wait_for_selector("text=Flags per record")
        page.goto(link)
        page.click("button")
        page.wait_for_selector("text=This link was used already")
        assert [line for line in said if "Content Security Policy" in line] == []
        browser.close()
