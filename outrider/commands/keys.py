"""``outrider keys``: create, list, limit and revoke keys."""

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from .api import connect
from .default_group import listing
from .output import Config, Json, as_json, table, tell

app = listing("List keys (the default); make, limit and revoke them.")
COLUMNS = {
    "name": "key",
    "scopes": "scopes",
    "models": "models",
    "created": "created",
    "created_by": "by",
    "last_used": "last used",
    "limits": "limits",
    "revoked": "revoked",
}


class Scope(StrEnum):
    """Rights of a key, as in `outrider.dataops.access.scopes`."""

    ingest = "ingest"
    read = "read"
    label = "label"
    review = "review"
    promote = "promote"
    admin = "admin"


Name: TypeAlias = Annotated[str, typer.Argument(help="Name of the key.")]
RecordsPerS: TypeAlias = Annotated[
    float | None, typer.Option("--records-per-s", min=0, help="Records and labels a second.")
]
Burst: TypeAlias = Annotated[
    int | None, typer.Option("--burst", min=1, help="Records at once after a rest; default those of 10 s.")
]
BytesPerDay: TypeAlias = Annotated[
    int | None, typer.Option("--bytes-per-day", min=0, help="Bytes of records and labels a day (UTC).")
]


@app.command("list")
def list_keys(
    revoked: Annotated[bool, typer.Option("--revoked", help="Revoked ones too.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show keys with their scopes, limits and last use."""
    found = connect(config).get("/v1/keys", revoked=str(revoked).lower())
    if json:
        as_json(found)
    else:
        shown = [
            {
                **key,
                "scopes": ", ".join(key["scopes"]),
                "models": ", ".join(key["models"]),
                "limits": _limits(key),
            }
            for key in found["keys"]
        ]
        table(shown, COLUMNS, empty="no key")


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Name, shown in the log.")],
    scope: Annotated[
        list[Scope],
        typer.Option(help="What it may do; several may be given."),
    ],
    model: Annotated[
        list[str] | None, typer.Option(help="Model that it is for alone; several may be given.")
    ] = None,
    records_per_s: RecordsPerS = None,
    burst: Burst = None,
    bytes_per_day: BytesPerDay = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Make a key, shown only once."""
    body = {"name": name, "scopes": [one.value for one in scope], "models": model or []}
    made = connect(config).post("/v1/keys", body | _wanted(records_per_s, burst, bytes_per_day))
    if json:
        as_json(made)
        return
    typer.echo(f"key {made['name']} ({', '.join(made['scopes'])}), shown this once:", err=True)
    typer.echo(made["key"])


@app.command()
def limit(
    name: Name,
    records_per_s: RecordsPerS = None,
    burst: Burst = None,
    bytes_per_day: BytesPerDay = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Set a key's limits; limits not named are removed."""
    body = _wanted(records_per_s, burst, bytes_per_day)
    found = connect(config).post(f"/v1/keys/{name}/limits", body)
    tell(found, f"key {found['name']}: {_limits(found) or 'no limits'}", json=json)


@app.command()
def revoke(name: Name, config: Config = None, json: Json = False) -> None:
    """Revoke a key, its sessions and links, at once."""
    found = connect(config).post(f"/v1/keys/{name}/revoke", {})
    tell(found, f"key {found['name']} is revoked, and its sessions have ended", json=json)


def _wanted(records_per_s: float | None, burst: int | None, bytes_per_day: int | None) -> dict[str, Any]:
    return {"records_per_s": records_per_s, "burst_records": burst, "bytes_per_day": bytes_per_day}


def _limits(key: dict[str, Any]) -> str:
    found = []
    if key["records_per_s"] is not None:
        burst = f" (burst {key['burst_records']})" if key["burst_records"] is not None else ""
        found.append(f"{key['records_per_s']:g} records/s{burst}")
    if key["bytes_per_day"] is not None:
        found.append(f"{key['bytes_today']} of {key['bytes_per_day']} bytes today")
    return ", ".join(found)
