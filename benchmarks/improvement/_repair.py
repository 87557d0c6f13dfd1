"""One repair by the real processes, by the clock: from the first faulty record to the promoted version."""

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from benchmarks.figure import Figure
from tests.end_to_end.service import Service, wait_until

PATIENCE_S = 900.0


class Clock:
    """Seconds of one stage after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def ends(self, stage: str, parts: Mapping[str, float] = MappingProxyType({})) -> None:
        """Note the time since the stage before; known ``parts`` of it stand for themselves."""
        now = time.monotonic()
        self.seconds |= {**parts, stage: now - self._began - sum(parts.values())}
        self._began = now

    def show(self, stem: str, data: str) -> None:
        """Print the whole and each stage."""
        for stage, value in (("", sum(self.seconds.values())), *self.seconds.items()):
            name = f"{stem}.repair{'.' if stage else ''}{stage}"
            Figure(name, value, "s", "1", value, n=1, data=f"one run by the clock, {data}").show()


def send(service: Service, records: list[dict[str, Any]]) -> None:
    """Post records, all of which are accepted."""
    for start in range(0, len(records), 500):
        some = records[start : start + 500]
        assert service.client.post("/v1/records", json=some).json()["accepted"] == len(some)


def label(service: Service, model: str, labels: dict[str, str]) -> None:
    """Post what people said of records, by their ids."""
    said = [
        {"model": model, "id": record, "label": {"label": answer}, "source": "human"}
        for record, answer in labels.items()
    ]
    assert service.client.post("/v1/labels", json=said).json()["accepted"] == len(said)


def newest_job(service: Service) -> dict[str, Any]:
    """Newest retraining; empty while there is none."""
    found = service.client.get("/v1/retrains").json()["retrains"]
    return dict(found[0]) if found else {}


def wait_while(service: Service, *statuses: str) -> None:
    """Wait until the newest retraining has none of these statuses; an empty one is that there is none."""
    wait_until(
        lambda: newest_job(service).get("status", "") not in statuses,
        f"job that is no longer {' or '.join(statuses)}",
        service,
        PATIENCE_S,
    )


def promoted(service: Service, model: str) -> str:
    """Version that the newest retraining made champion."""
    result = newest_job(service)["result"]
    assert result.get("promoted"), result
    champion = service.client.get(f"/v1/models/{model}/versions/champion").json()["version"]
    assert champion == result["candidate"], f"{champion} is champion, not {result['candidate']}"
    return str(champion)
