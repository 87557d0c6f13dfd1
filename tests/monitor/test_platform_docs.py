"""Configuration on the pages of platforms can be copied: each loads, and takes what the platform sends."""

import re
from pathlib import Path

import pytest

from outrider.monitor.server.process import ServerProcess
from outrider.monitor.settings.config import load_settings

from .event_payloads import IRIS, kserve, seldon
from .test_intake import Caller

PLATFORMS = Path(__file__).parents[2] / "docs" / "platforms"
EVENTS = {
    "kserve.md": [kserve("request", {"instances": IRIS}), kserve("response", {"predictions": [1, 2]})],
    "seldon.md": [
        seldon("request", {"data": {"ndarray": IRIS}}, event="1"),
        seldon("response", {"data": {"names": ["a"], "ndarray": [[1], [2]]}}, event="2"),
    ],
}


@pytest.mark.parametrize("page", sorted(EVENTS))
def test_the_configuration_of_a_page_takes_events_of_its_platform(page: str, tmp_path: Path) -> None:
    text = (PLATFORMS / page).read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "outrider.toml").write_text(example, encoding="utf-8")
    intake = ServerProcess(load_settings(tmp_path / "outrider.toml"))
    intake.writer.start()
    try:
        for headers, body in EVENTS[page]:
            (address,) = re.findall(r"url: http://[^/]+(/\S+)", text)
            answer = Caller(intake)("POST", address, headers=headers, content=body)
            assert answer.json() == {"accepted": 2, "rejected": []}
        metrics = Caller(intake)("GET", "/metrics").text
        assert 'outrider_halves_total{model="iris",outcome="joined",process="intake"} 2.0' in metrics
    finally:
        intake.close()
