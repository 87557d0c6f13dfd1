"""``outrider test add``: turn flagged records into cases of a suite file."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.errors import ConfigError, GateRefused, NotFound, OutriderError

from .api import Api, connect, one_model
from .durations import seconds
from .output import Config, Json, ModelOption, as_json, table
from .suite_candidates import label_value
from .suite_files import Seed, check_name

QUERY = {"assertion", "level", "slot", "since", "limit"}
COLUMNS = {"case": "record", "test": "test", "state": "state", "file": "file"}


class As(StrEnum):
    """Kind of test that a record becomes."""

    MFT = "mft"
    INV = "inv"


def add(
    flags: Annotated[
        list[str] | None,
        typer.Option(
            help="Flag ids, or a search such as 'assertion=too_high since=2h limit=5' (may be repeated)."
        ),
    ] = None,
    records: Annotated[
        list[str] | None, typer.Option("--record", help="Record id (may be repeated).")
    ] = None,
    model: ModelOption = None,
    mode: Annotated[
        As, typer.Option("--as", help="mft: with the right answer; inv: with a changed copy.")
    ] = As.MFT,
    label: Annotated[
        str | None,
        typer.Option(help="Right answer; by default the label, else the assertions' correction."),
    ] = None,
    perturb: Annotated[
        str | None, typer.Option(help="Perturbation that makes the changed copy, such as text.typos.")
    ] = None,
    field: Annotated[str | None, typer.Option(help="Input that --perturb changes.")] = None,
    seed: Seed = 0,
    to: Annotated[
        Path | None, typer.Option(help="Suite file here, in place of the model's own (incident_suite).")
    ] = None,
    source: Annotated[str, typer.Option(help="Author of the case.")] = "human",
    config: Config = None,
    json: Json = False,
) -> None:
    """Write flagged records as test cases.

    Exit code 1 when one was refused.

    Adding the same record to the same test again changes nothing.
    """
    if to is not None:
        check_name(to)
    if perturb is not None and mode is As.MFT:
        raise typer.BadParameter("--perturb makes a changed copy: it belongs to --as inv")
    api = connect(config)
    name = one_model(api, model)
    body: dict[str, Any] = {"mode": str(mode), "by": source, "label": _value(label)}
    added: list[Any] = []
    refused: list[dict[str, str]] = []
    for which in _wanted(api, name, flags or [], records or []):
        try:
            changed = {} if perturb is None else _changed(api, name, which, perturb, field, seed)
            asked = {key: which[key] for key in ("flag", "record_id") if key in which}
            added.append(_add(api, name, body | asked | changed, to))
        except (GateRefused, NotFound, ConfigError) as error:
            refused.append({"case": which.get("record", which.get("record_id", "")), "reason": str(error)})
    if json:
        as_json({"cases": added, "refused": refused})
    else:
        table(added, COLUMNS, empty="no case was written")
        for row in refused:
            typer.echo(f"refused: {row['reason']}", err=True)
    if refused:
        raise typer.Exit(1)


def _add(api: Api, model: str, body: Mapping[str, Any], to: Path | None) -> Any:
    path = f"/v1/suites/{model}/cases"
    if to is None:
        return api.post(path, body)
    import msgspec

    from outrider.behavioral_tests.suite_file import WrittenTest, add_case

    test = msgspec.convert(api.post(path, {**body, "write": False})["test"], WrittenTest)
    return {"file": str(to), "test": test.name, "case": test.cases[0].id, "state": add_case(to, test)}


def _wanted(api: Api, model: str, flags: list[str], records: list[str]) -> Iterator[dict[str, str]]:
    """Flags and records to add, without duplicates; ``--flags`` may hold ids or a search."""
    words = [word for text in flags for word in text.replace(",", " ").split()]
    query = dict(word.split("=", 1) for word in words if "=" in word)
    if unknown := sorted(set(query) - QUERY):
        raise typer.BadParameter(f"--flags: {', '.join(sorted(QUERY))} expected, got {unknown[0]!r}")
    if not words and not records:
        raise typer.BadParameter("--flags or --record is needed: which records become cases")
    found = [{"flag": word} for word in words if "=" not in word]
    found += [{"record_id": record} for record in records]
    if query:
        found += _searched(api, model, query)
    yield from {tuple(sorted(each.items())): each for each in found}.values()


def _searched(api: Api, model: str, query: Mapping[str, str]) -> list[dict[str, str]]:
    limit = query.get("limit", "20")
    if not limit.isdecimal() or not 0 < int(limit) <= 1000:
        raise typer.BadParameter(f"--flags limit=: 1 to 1000 expected, got {limit!r}")
    since = 0.0
    if "since" in query:
        since = (datetime.now(UTC) - timedelta(seconds=seconds(query["since"]))).timestamp() * 1e6
    kept = {name: value for name, value in query.items() if name in ("assertion", "level", "slot")}
    found = api.get("/v1/flags", model=model, limit=limit, **kept)["flags"]
    recent = [flag for flag in found if flag["ts_us"] >= since]
    if not recent:
        raise NotFound(f"{model} has no such flag: {' '.join(f'{k}={v}' for k, v in query.items())}")
    return [{"flag": flag["id"], "record": flag["record_id"]} for flag in recent]


def _changed(
    api: Api, model: str, which: Mapping[str, str], name: str, field: str | None, seed: int
) -> dict[str, Any]:
    """Request fields with the perturbed copy of a record, and the name of its test."""
    from outrider.assertions import Batch
    from outrider.behavioral_tests import generator
    from outrider.behavioral_tests.perturb.perturbation import apply

    record_id = which.get("record_id") or which.get("record")
    if record_id is None:
        record_id = str(api.get(f"/v1/flags/{model}/{which['flag']}")["record_id"])
    record = api.get(f"/v1/records/{model}/{record_id}")["record"]
    if record is None:
        raise ConfigError(f"the payload of {record_id} has expired: its inputs are no longer known")
    batch = Batch.from_records([{"id": record_id, "inputs": record.get("inputs") or {}}], model=model)
    try:
        perturbed = apply(perturbation(name, field), batch, generator(seed, f"{name} {record_id}"))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{name} on {record_id}: {error}") from error
    if not perturbed.changed[0]:
        raise ConfigError(f"{name} changes nothing in {record_id}: it is no case; take another perturbation")
    return {
        "variants": [perturbed.batch.to_records()[0]["inputs"]],
        "test": f"same_answer_under_{name}",
    }


def perturbation(name: str, field: str | None) -> Any:
    """Perturbation of the library by name, such as ``text.typos``."""
    from outrider.behavioral_tests import perturb

    module, _, function = name.partition(".")
    part = getattr(perturb, module, None) if module in perturb.__all__ else None
    make = None if function.startswith("_") else getattr(part, function, None)
    if not callable(make) or not str(getattr(make, "__module__", "")).startswith(perturb.__name__):
        raise ConfigError(f"a perturbation of the library, such as text.typos, expected, got {name!r}")
    try:
        return make() if field is None else make(field)
    except TypeError as error:
        raise ConfigError(f"{name}: {error}") from error


def _value(text: str | None) -> Any:
    value = None if text is None else label_value(text)
    if value is None and text is not None:
        raise OutriderError("--label null is no answer: leave the option out")
    return value
