"""Senders of requests, and sessions that each may see."""

from dataclasses import dataclass

from fastapi import Request

from outrider.dataops.access.store import JobTokenRow
from outrider.errors import NotFound

from .keyring import Holder, Keyring, Session
from .problem import Problem, ProblemError, problem

GOES_ON = "goes_on"
"""Set by a route in ``request.state``: the request continues a logged change."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Sender of a request, as ``request.state.visitor`` for routes; ``holder`` is None on open routes,
    ``address`` as a trusted proxy gave it."""

    address: str
    holder: Holder | None = None
    session: Session | None = None
    token: JobTokenRow | None = None
    """Token of a job that is trained outside, which allows only what its job needs."""

    @property
    def name(self) -> str:
        if self.token is not None:
            return self.token.job
        return self.holder.name if self.holder else ""


def visitor_of(request: Request) -> Visitor:
    found: Visitor | None = getattr(request.state, "visitor", None)
    return found or Visitor("")


def of_job(visitor: Visitor, job: str | None, *, model: str | None = None) -> str | None:
    """Job of a request, within the token's job or the key's models.

    ProblemError 401 for another job's token, 403 for a key of other models.
    """
    token, holder = visitor.token, visitor.holder
    if holder is not None and holder.models is not None and model is not None and model not in holder.models:
        known = ", ".join(sorted(holder.models))
        why = f"key {holder.name!r} is for model {known} alone, not {model}"
        raise ProblemError(problem(403, why, key=holder.name))
    if token is None:
        return job
    if job not in (None, token.job) or model not in (None, token.model):
        raise ProblemError(wrong_token(f"it is of {token.job} of model {token.model!r} alone"))
    return token.job


def wrong_token(why: str) -> Problem:
    return problem(
        401,
        f"the job token is not valid here: {why}",
        headers={"www-authenticate": 'Bearer realm="outrider job"'},
    )


def sessions_for(keyring: Keyring, visitor: Visitor) -> list[Session]:
    """Sessions that a visitor may see: its key's, for admins all."""
    found = keyring.list_sessions()
    holder = visitor.holder
    if holder is not None and "admin" in holder.rights:
        return found
    return [one for one in found if holder is not None and one.holder.id == holder.id]


def end_session_for(keyring: Keyring, visitor: Visitor, id_: str) -> Session:
    found = next((one for one in sessions_for(keyring, visitor) if one.row.id == id_), None)
    if found is None or not keyring.end_session(id_):
        raise NotFound(f"no session {id_!r} is in force; GET /v1/sessions lists them")
    return found
