"""docs/triggers.md: configuration, receiver, rule and answer are what the service takes and gives."""

import json
import re
from pathlib import Path
from typing import get_type_hints

import yaml  # type: ignore[import-untyped]  # no stubs

from outrider.dataops.triggers.decision import TRIGGER_OUTCOMES
from outrider.monitor.settings.config import load_settings
from outrider.monitor.views.triggers.routes import AlertsTaken, IgnoredAlert
from tests.scopes import every_route

PAGE = (Path(__file__).parents[2] / "docs" / "triggers.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_configuration_sets_every_trigger(tmp_path: Path) -> None:
    (toml,) = blocks("toml")
    (tmp_path / "outrider.toml").write_text(toml)
    own = load_settings(tmp_path / "outrider.toml").models["churn"].retrain
    assert own.active_triggers == (
        "labelled_flags", "flag_rates", "behavior", "incidents", "corrected", "schedule", "alerts",
    )  # fmt: skip
    named = set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE))
    assert {"labelled_flags", *own.triggers.model_dump()} <= named


def test_the_receiver_posts_to_the_route_and_the_rule_names_the_model(tmp_path: Path) -> None:
    manager, rules = map(yaml.safe_load, blocks("yaml"))
    (hook,) = manager["receivers"][1]["webhook_configs"]
    assert "POST " + hook["url"].removeprefix("http://127.0.0.1:8470") in {
        route.action for route in every_route()
    }
    assert hook["http_config"]["authorization"]["credentials_file"]
    (rule,) = rules["groups"][0]["rules"]
    (tmp_path / "outrider.toml").write_text(blocks("toml")[0])
    models = load_settings(tmp_path / "outrider.toml").models
    assert rule["alert"] in models[rule["labels"]["model"]].retrain.triggers.alerts
    assert rule["alert"] in manager["route"]["routes"][0]["matchers"][0]


def test_the_answer_is_one_of_the_api_and_words_are_those_of_the_log() -> None:
    (answer,) = map(json.loads, blocks("json"))
    assert answer.keys() == get_type_hints(AlertsTaken).keys()
    assert answer["ignored"][0].keys() == get_type_hints(IgnoredAlert).keys()
    assert all(f"`{word}`" in PAGE for word in TRIGGER_OUTCOMES)
