"""``outrider review``: mark flags as model errors or false alarms."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from .api import Api, connect, one_model
from .output import Config, Json, ModelArgument, as_json, printable

ANSWERS = {"y": True, "n": False}


def review(
    model: ModelArgument = None,
    assertion: Annotated[str | None, typer.Option(help="Only flags of this assertion.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many flags, newest first.")] = 20,
    flag: Annotated[str | None, typer.Option(help="Review this flag, by its id; needs --answer.")] = None,
    answer: Annotated[str | None, typer.Option(help="y: the model was wrong; n: a false alarm.")] = None,
    note: Annotated[str, typer.Option(help="Kept with the review of --flag.")] = "",
    source: Annotated[str, typer.Option(help="Source of the review.")] = "human",
    config: Config = None,
    json: Json = False,
) -> None:
    """Review flags one after another: was the model wrong?."""
    if (flag is None) != (answer is None) or (answer is not None and answer not in ANSWERS):
        raise typer.BadParameter("--flag and --answer y|n belong together")
    api = connect(config)
    given: list[Any] = []
    if flag is not None and answer is not None:
        given.append(_give(api, flag, is_error=ANSWERS[answer], source=source, note=note))
    else:
        query = {"assertion": assertion, "limit": limit, "reviewed": "false"}
        name = one_model(api, model)
        flags = api.get("/v1/flags", model=name, **query)["flags"]
        if not flags:
            typer.echo(f"no flag of {name} waits for a review", err=True)
        for at, one in enumerate(flags, start=1):
            record = api.get(f"/v1/records/{name}/{one['record_id']}")
            typer.echo(err=True)
            for line in described(one, record, f"{at} of {len(flags)}"):
                typer.echo(printable(line), err=True)
            reply = _ask()
            if reply == "q":
                break
            if reply in ANSWERS:
                given.append(_give(api, one["id"], is_error=ANSWERS[reply], source=source, note=""))
    if json:
        as_json({"reviews": given})
    else:
        wrong = sum(row["is_error"] for row in given)
        typer.echo(f"{len(given)} reviewed: the model was wrong on {wrong}")


def described(flag: Mapping[str, Any], record: Mapping[str, Any], place: str) -> Iterator[str]:
    """Description of a flag for a reviewer, line by line."""
    how = f"{flag['level']}, severity {flag['severity']:.3g}"
    yield f"[{place}] {flag['assertion']} ({how}) on {flag['record_id']}"
    yield f"  said {flag['predicted']}" + (f", labelled {flag['label']}" if flag["label"] is not None else "")
    payload = record.get("record") or {}
    parts = {part: payload.get(part) or {} for part in ("inputs", "outputs", "attrs")}
    for part, value in {**parts, "evidence": flag["evidence"]}.items():
        for name, text in _flat(value, part):
            yield f"  {name}: {text}"


def _ask() -> str:
    typer.echo("  Was the model wrong? [y]es, [n]o, [s]kip, [q]uit: ", err=True, nl=False)
    while True:
        try:
            reply = input().strip().lower()[:1]
        except EOFError:
            return "q"
        if reply in ("y", "n", "s", "q"):
            return reply
        typer.echo("  y, n, s or q: ", err=True, nl=False)


def _give(api: Api, flag: str, *, is_error: bool, source: str, note: str) -> Any:
    return api.post("/v1/reviews", {"flag": flag, "is_error": is_error, "source": source, "note": note})


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Nested values as pairs of dotted name and text; tensors as their shape."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}")
    elif isinstance(value, list) and value and isinstance(value[0], list):
        yield name, f"{len(value)} x {len(value[0])} values"
    else:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
        yield name, text if len(text) <= 300 else f"{text[:300]}…"
