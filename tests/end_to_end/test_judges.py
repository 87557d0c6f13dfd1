"""A judge in the running service: asked over HTTP, its flags on the API, its worth on the command line."""

import json
from pathlib import Path

import pytest

from tests.chat_server import chat_server

from .service import Service, outrider, wait_until

CONFIG = """
[server]
port = 0

[models.toy]
task = "other"
target = "text"
assertions = ["checks.py"]

[models.toy.judges.grounded]
prompt = "{attrs.passages} | {outputs.text}"
answer = {verdict = ["grounded", "not_grounded"]}
url = "URL"
"""

CHECKS = '''
from outrider.assertions import assertion


@assertion(needs=("judge.grounded",))
def ungrounded(batch):
    """The judge says so."""
    return batch.answers("judge.grounded").column("outputs.verdict", null="") == "not_grounded"
'''


def say(prompt: str) -> str:
    values = json.loads(prompt)
    passages, answer = values["attrs.passages"], values["outputs.text"]
    return f'{{"verdict": "{"grounded" if answer in passages else "not_grounded"}"}}'


def tokens(service: Service) -> list[str]:
    lines = service.client.get("/metrics").text.splitlines()
    return [line.rpartition(" ")[2] for line in lines if line.startswith("outrider_judge_tokens_total{")]


def test_a_judge_is_asked_and_its_worth_is_shown(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CHECKS, encoding="utf-8")
    with chat_server(say) as server:
        path = tmp_path / "outrider.toml"
        path.write_text(CONFIG.replace("URL", server.url), encoding="utf-8")
        with Service(path) as service:
            service.post(
                [
                    {"id": f"r{n}", "outputs": {"text": text}, "attrs": {"passages": "two years, free"}}
                    for n, text in enumerate(("two years", "three years", "free", "gratis"))
                ]
            )
            truth = {"r0": "grounded", "r1": "not_grounded", "r2": "grounded", "r3": "grounded"}
            labels = [
                {"model": "toy", "id": key, "label": {"verdict": value}, "source": "human"}
                for key, value in truth.items()
            ]
            assert service.client.post("/v1/labels", json=labels).status_code == 202
            wait_until(lambda: service.count("answered", "judge.grounded") == 4, "answers", service)
            wait_until(lambda: service.count("labels") == 4, "labels", service)
            flags = service.client.get("/v1/flags", params={"model": "toy"}).json()["flags"]
            assert {(flag["record_id"], flag["slot"]) for flag in flags} == {
                ("r1", "champion"),
                ("r3", "champion"),
            }
            (judge,) = service.run_command("judges", "toy")["judges"]
            assert judge["agreement"]["n"] == 4
            assert judge["agreement"]["accuracy"] == 0.75
            assert judge["agreement"]["kappa"] == pytest.approx(0.5)
            assert judge["tokens"] == 28
            shown = outrider(tmp_path, "judges", "toy").stdout
            assert "grounded" in shown
            assert "0.75" in shown
            # Samples travel to the intake once a second.
            wait_until(lambda: tokens(service) == ["28.0"], "tokens among the metrics", service)
