"""API of keys, one-time links, sessions, and the log of writes."""

from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from fastapi import Path, Query, Request
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from outrider.dataops.access.scopes import Right
from outrider.dataops.access.store import KeyLimits, KeyRow, SessionRow, WriteRow
from outrider.errors import NotFound, check_name
from outrider.monitor.http.auth import LOGIN
from outrider.monitor.http.common import RequestBody, iso
from outrider.monitor.http.declared import FieldsOf, Listed, Time
from outrider.monitor.http.keyring import OWNER, Keyring, Session
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.routes import change, view
from outrider.monitor.http.visitors import end_session_for, sessions_for, visitor_of
from outrider.monitor.views.service import Service

MOST_KEYS = 1000
"""Most keys in force: all are held in memory."""
_MOST_BYTES = 2**62
_OWNER_STAYS = (
    "the key of the owner is the file 'key' of the data folder: delete it and start the service anew"
)

WriteFacts: TypeAlias = Annotated[WriteRow, FieldsOf(WriteRow, "Write", times=True)]
Name: TypeAlias = Annotated[str, Path(max_length=64)]


KEY = FieldsOf(
    KeyRow,
    "KeyFacts",
    about="Key without its secret; a limit is null where there is none.",
    times=True,
    without=("id", "digest", "used_us", "day", "day_bytes"),
    more={"scopes": list[str], "models": list[str], "last_used": Time | None, "bytes_today": int},
)
KeyFacts: TypeAlias = Annotated[dict[str, Any], KEY]
_NEW_KEY = replace(
    KEY,
    name="NewKey",
    about="Key just made, and its secret, which is shown this once.",
    more={**KEY.more, "key": str},
)
SESSION = FieldsOf(
    SessionRow,
    "SessionFacts",
    about="Session of a browser.",
    times=True,
    without=("digest", "key_id", "used_us"),
    more={"key": str, "last_used": Time},
)
SessionFacts: TypeAlias = Annotated[dict[str, Any], SESSION]
Keys: TypeAlias = Annotated[list[KeyFacts], Listed("keys", "Keys", "Keys in order of creation.")]


class Link(TypedDict):
    """One-time link: its path, and its end."""

    path: str
    until: Time
    key: str


Sessions: TypeAlias = Annotated[
    list[SessionFacts], Listed("sessions", "Sessions", "Sessions in force, newest first.")
]


class Writes(TypedDict):
    """Changes, newest first; ``before`` asks for older ones."""

    writes: list[WriteFacts]
    before: int | None


class LimitsWanted(RequestBody):
    """Limits of a key; null for none."""

    records_per_s: float | None = Field(default=None, gt=0, le=1e9, allow_inf_nan=False)
    burst_records: int | None = Field(default=None, ge=1, le=10**9)
    bytes_per_day: int | None = Field(default=None, ge=0, le=_MOST_BYTES)

    def limits(self) -> KeyLimits:
        return KeyLimits(self.records_per_s, self.burst_records, self.bytes_per_day)


class KeyWanted(LimitsWanted):
    """Key to be made."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")
    scopes: list[Right] = Field(min_length=1, max_length=6)
    models: list[Annotated[str, AfterValidator(lambda name: check_name(name, "model"))]] = Field(
        default_factory=list, max_length=100
    )
    """That it is for alone; none for all."""


@view("/v1/log", scope="admin", tag="access")
def read_log(
    service: Service,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=_MOST_BYTES)] = None,
    key: Annotated[str | None, Query(max_length=64)] = None,
) -> Writes:
    """Changes by whoever asked for them, newest first; records and labels stand in the journal."""
    rows = service.keyring.store.list_writes(limit=limit, before=before, key=key)
    more = rows[-1].id if len(rows) == limit else None
    return {"writes": rows, "before": more}


@view("/v1/keys", scope="admin", tag="access")
def list_keys(service: Service, revoked: bool = False) -> Keys:
    """Keys with their scopes, limits and last use, without their secrets."""
    return [_key(row) for row in service.keyring.list_keys(with_revoked=revoked)]


@change("POST /v1/keys", scope="admin", tag="access", status_code=201)
def create_key(service: Service, body: KeyWanted, request: Request) -> Annotated[dict[str, Any], _NEW_KEY]:
    """Make a key; the answer alone holds its secret."""
    scopes = list(dict.fromkeys(body.scopes))
    if len(service.keyring.list_keys()) >= MOST_KEYS:
        raise ProblemError(problem(409, f"{MOST_KEYS} keys are in force: revoke those not used"))
    by = visitor_of(request).name
    models = sorted({*body.models})
    secret = service.keyring.add_key(body.name, scopes=scopes, models=models, limits=body.limits(), by=by)
    if secret is None:
        detail = f"a key {body.name!r} is in force: revoke it, or choose another name"
        raise ProblemError(problem(409, detail, field="name"))
    return {**_key(_named(service.keyring, body.name)), "key": secret}


@change("POST /v1/keys/{name}/limits", scope="admin", tag="access")
def limit_key(service: Service, name: Name, body: LimitsWanted) -> KeyFacts:
    """Set a key's limits: records a second with a burst, bytes a day."""
    service.keyring.limit_key(name, body.limits())
    return _key(_named(service.keyring, name))


@change("POST /v1/keys/{name}/revoke", scope="admin", tag="access")
def revoke_key(service: Service, name: Name, request: Request) -> KeyFacts:
    """Revoke a key, its sessions and links, at once."""
    row = _named(service.keyring, name)
    if name == OWNER:
        raise ProblemError(problem(409, _OWNER_STAYS))
    service.keyring.revoke_key(name, by=visitor_of(request).name)
    revoked = [one for one in service.keyring.list_keys(with_revoked=True) if one.id == row.id]
    return _key(revoked[0])


@change("POST /v1/logins", scope="read", tag="access", status_code=201)
def make_link(service: Service, request: Request) -> Link:
    """Make a link that opens the page once, with the scopes of the key that asks."""
    holder = visitor_of(request).holder
    made = service.keyring.store.make_link(holder.digest, now_us=service.keyring.now_us()) if holder else None
    if holder is None or made is None:
        raise NotFound("the key is not in force any more")
    return {"path": f"{LOGIN}?token={made[0]}", "until": iso(made[1]) or "", "key": holder.name}


@view("/v1/sessions", scope="read", tag="access")
def list_sessions(service: Service, request: Request) -> Sessions:
    """Sessions in force: those of the key that asks, for admins all."""
    return [_session(one) for one in sessions_for(service.keyring, visitor_of(request))]


@change("POST /v1/sessions/{session}/end", scope="read", tag="access")
def end_session(service: Service, session: Name, request: Request) -> SessionFacts:
    """End a session at once."""
    return _session(end_session_for(service.keyring, visitor_of(request), session))


def _named(keyring: Keyring, name: str) -> KeyRow:
    found = next((row for row in keyring.list_keys() if row.name == name), None)
    if found is None:
        raise NotFound(f"no key {name!r} is in force; GET /v1/keys lists them")
    return found


def _key(row: KeyRow) -> dict[str, Any]:
    scopes, models = row.scopes.split(), row.model_names
    return KEY.body(row, scopes=scopes, models=models, last_used=row.used_us, bytes_today=row.day_bytes)


def _session(session: Session) -> dict[str, Any]:
    row = session.row
    return SESSION.body(row, key=session.holder.name, last_used=max(session.used_us, row.used_us))
