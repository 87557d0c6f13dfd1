"""Read-back of a run's end over the service's HTTP API."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from outrider.commands.api import Api

from .figures import RunFacts
from .truth import FrameAnswer

MODEL = "digits"


def read_facts(
    api: Api,
    production: Api,
    *,
    answers: Sequence[FrameAnswer],
    promoted: str,
    refused: Mapping[str, Any] | None,
    labels: Mapping[str, int],
    seconds: Mapping[str, float],
    first_flag_s: float | None,
) -> RunFacts:
    """Everything that the report is made of.

    Parameters
    ----------
    api, production
        Outrider, and the service whose model it watches.
    """
    view = api.get("/v1/overview", model=MODEL)["models"][0]
    phase_of = {answer.id: answer.phase for answer in answers}
    flags: dict[str, Counter[str]] = {}
    for flag in read_flags(api):
        flags.setdefault(phase_of.get(flag["record_id"], "?"), Counter())[flag["assertion"]] += 1
    trained = trained_rows(api, promoted)
    return RunFacts(
        answers=tuple(answers),
        flags=flags,
        precision={
            row["name"]: (row["precision"]["hits"], row["precision"]["trials"]) for row in view["assertions"]
        },
        judged=view["records"],
        duplicates=view["duplicates"],
        conflicts=view["conflicts"],
        dead_letters=len(view["dead_letters"]),
        trained_on={name: len(rows) for name, rows in trained.items()},
        trained_cards=frozenset(card for rows in trained.values() for card in rows),
        verdicts=api.get("/v1/gates", model=MODEL)["gates"][::-1],
        refused_job=refused,
        promoted=promoted,
        serving=production.get("/healthz")["version"],
        labels=labels,
        datasets=api.get("/v1/datasets", model=MODEL)["datasets"],
        corrected=corrected_rows(api) if "corrected" in labels else (),
        deliveries=production.get("/hooks"),
        seconds=seconds,
        first_flag_s=first_flag_s,
        challengers=challengers(api),
        watches=api.get(f"/v1/models/{MODEL}/watch", limit=10)["watches"],
        history=api.get(f"/v1/models/{MODEL}/history")["changes"],
    )


def corrected_rows(api: Api) -> list[dict[str, Any]]:
    """Relabelled rows of the second dataset version, with their records."""
    found = api.get(f"/v1/datasets/{MODEL}-flagged/diff", old=1, new=2, limit=10)["rows"]
    rows = [row for row in found if row["labels_before"] != row["labels_after"]]
    for row in rows:
        row["record"] = api.get(f"/v1/records/{MODEL}/{row['id']}")
    return rows


def challengers(api: Api) -> list[dict[str, Any]]:
    """The shadow tests of the versions that ``outrider.toml`` names."""
    named = ("twin", "compressed", "small")
    tests = api.get("/v1/agreement", model=MODEL)["tests"]
    return sorted(
        (test for test in tests if test["version"] in named), key=lambda test: named.index(test["version"])
    )


def read_flags(api: Api) -> Iterator[dict[str, Any]]:
    """Every flag of the champion's slot, newest first."""
    after: str | None = None
    while True:
        page = api.get("/v1/flags", model=MODEL, slot="champion", limit=1000, after=after)
        yield from page["flags"]
        after = page["after"]
        if after is None:
            return


def trained_rows(api: Api, version: str) -> dict[str, list[str]]:
    """Cards of a model version's training rows, by dataset version."""
    found = {}
    for node in api.get(f"/v1/lineage/{MODEL}", version=version)["parents"]:
        if node["kind"] != "dataset" or node["role"] not in ("fresh", "replay"):
            continue
        name, _, number = node["id"].rpartition("@")
        part = "train" if node["role"] == "fresh" else None
        stream = api.get_bytes(f"/v1/datasets/{name}/versions/{number}/rows", part=part)
        with pa.ipc.open_stream(stream) as reader:
            found[node["id"]] = reader.read_all().column("entity").to_pylist()
    return found
