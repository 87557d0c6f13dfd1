"""A bad promotion in a real service: labels come, the watch rolls it back, production's pointer follows."""

from pathlib import Path

import pytest

from tests.soak import PATIENCE_S

from .service import CONFIG, MODEL, Service, outrider, wait_until, write_project

BAD = """

def bad(batch):
    found = predict(batch)
    return found | {"label": 1 - found["label"]}
"""
CHALLENGER = """
[models.toy.watch]
auto_rollback = true

[models.toy.challengers.bad]
predictor = "model.py:bad"
"""


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_bad_promotion_is_rolled_back_by_its_labels(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + CHALLENGER)
    (tmp_path / "model.py").write_text(MODEL + BAD, encoding="utf-8")
    with Service(config) as service:
        service.post([{"id": "first", "inputs": {"x": 0.1}}])
        service.wait_judged(1)
        assert outrider(tmp_path, "watch", "toy").stdout.startswith("no champion was watched yet")
        service.run_command("promote", "toy", "bad", "--force", "--reason", "the release is due")
        status = dict(service.query("SELECT version, status FROM model_version"))
        assert status == {"1": "former", "bad": "champion"}
        sent = 0
        while not is_rolled_back(service) and sent < 300:
            part = range(sent, sent + 50)
            service.post([{"id": f"r{n}", "entity": f"e{n}", "inputs": {"x": n / 300}} for n in part])
            sent += len(part)
            service.wait_judged(1 + sent)
            labels = [{"model": "toy", "id": f"r{n}", "label": {"label": int(n > 150)}} for n in part]
            assert service.client.post("/v1/labels", json=labels).status_code == 202
        wait_until(lambda: is_rolled_back(service), "rollback", service, PATIENCE_S)
        champion = service.client.get("/v1/models/toy/versions/champion").json()
        assert champion["version"] == "1"
        told = outrider(tmp_path, "watch", "toy").stdout
        assert "Version bad was rolled back to version 1 by the watch" in told
        assert "labels: of " in told
        assert "After promotion" in service.client.get("/m/toy/retrains").text


def is_rolled_back(service: Service) -> bool:
    (found,) = service.client.get("/v1/models/toy/watch").json()["watches"]
    return bool(found["outcome"] == "rolled_back")
