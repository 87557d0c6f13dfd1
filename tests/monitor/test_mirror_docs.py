"""The pages of platforms that mirror: their settings load, their YAML parses, their requests are taken."""

import importlib
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import Settings, load_settings
from tests.monitor.test_intake_mirrors import Target

yaml: Any = importlib.import_module("yaml")  # comes with transformers, without types
PLATFORMS = Path(__file__).parents[2] / "docs" / "platforms"
PAGES = ("envoy-istio", "nginx", "triton", "openai-vllm")


def blocks(page: str, language: str) -> list[str]:
    """Code blocks of a page."""
    text = (PLATFORMS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def settings(page: str, folder: Path) -> Settings:
    """The configuration that a page shows."""
    [text] = blocks(page, "toml")
    path = folder / "outrider.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def requests(page: str) -> list[tuple[str, dict[str, str], bytes | None]]:
    """Path, headers and body of every curl command of a page."""
    found = []
    for block in blocks(page, "bash"):
        for command in re.split(r"^curl ", block, flags=re.MULTILINE)[1:]:
            words = shlex.split(command)
            headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
            body = words[words.index("-d") + 1].encode() if "-d" in words else None
            [url] = [word for word in words if word.startswith("http://")]
            found.append((re.sub(r"^http://[^/]+", "", url), headers, body))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_requests_of_a_page_are_taken_with_its_settings(page: str, tmp_path: Path) -> None:
    intake = ServerProcess(settings(page, tmp_path))
    intake.writer.start()
    try:
        target = Target(intake)
        for path, headers, body in requests(page):
            if body is None:
                continue  # a query: the worker has not judged anything here
            keyed = headers | {"Authorization": f"Bearer {target.key}"}
            if page == "nginx":
                keyed["x-outrider-mirror"] = "1"  # nginx sets it
            answer = target.call("POST", path, body, keyed)
            assert answer.status_code in (200, 202), answer.text
    finally:
        intake.close()


@pytest.mark.parametrize("page", PAGES)
def test_the_yaml_of_a_page_parses(page: str) -> None:
    for block in blocks(page, "yaml"):
        assert all(isinstance(part, dict | list) for part in yaml.safe_load_all(block))


def test_the_pages_name_what_there_is() -> None:
    [envoy, *_] = map(yaml.safe_load, blocks("envoy-istio", "yaml")[:1])
    clusters = {one["name"]: one for one in envoy["static_resources"]["clusters"]}
    chain = envoy["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    [route] = chain["route_config"]["virtual_hosts"][0]["routes"]
    [mirror] = route["route"]["request_mirror_policies"]
    assert {route["route"]["cluster"], mirror["cluster"]} == set(clusters)
    assert all(clusters[name]["load_assignment"]["cluster_name"] == name for name in clusters)


def test_the_tensors_of_the_triton_page_become_the_columns_it_names(tmp_path: Path) -> None:
    intake = ServerProcess(settings("triton", tmp_path))
    intake.writer.start()
    try:
        target = Target(intake)
        tensor: dict[str, Any] = {"name": "input__0", "shape": [2, 3], "datatype": "FP32"}
        body = json.dumps({"inputs": [tensor | {"data": [41, 52000, 3, 23, 18000, 1]}]}).encode()
        answer = target.post("/v2/models/churn_onnx/infer", body, x_request_id="try-1")
        assert answer.status_code == 200, answer.text
        rows = target.rows("churn")
    finally:
        intake.close()
    assert [(row["id"], row["inputs"]) for row in rows] == [
        ("try-1:0", {"age": 41.0, "income": 52000.0, "tenure": 3.0}),
        ("try-1:1", {"age": 23.0, "income": 18000.0, "tenure": 1.0}),
    ]
