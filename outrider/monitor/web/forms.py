"""Forms of the pages: changes that a person asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import parse_qs, quote

from fastapi import Depends, Request
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response

from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.incident_cases import Mode
from outrider.dataops.datasets.quarantine import Action, settle
from outrider.dataops.flags import quality, reviews
from outrider.dataops.improvement import jobs
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import now_us, write
from outrider.errors import NotFound
from outrider.monitor.http.champion_actions import roll_back
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.incident_actions import act
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.visitors import visitor_of
from outrider.monitor.queries.learning import Learner
from outrider.monitor.queries.queries import read_record, why_gone
from outrider.monitor.queries.suite_cases import CaseWanted, CaseWriter

from .frame import PageFrame
from .label_form import LabelWriter, label_value
from .pictures import record_link

FORM_BYTES = 65_536
NOTE_LETTERS = 500


async def _form(request: Request) -> dict[str, str]:
    """Fields of a small form; who may send it was asked before (the CSRF token)."""
    body = await request.body()
    if len(body) > FORM_BYTES:
        raise ProblemError(problem(413, f"a form of at most {FORM_BYTES} bytes expected"))
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=100)
    return {name: values[0] for name, values in fields.items()}


Fields: TypeAlias = Annotated[dict[str, str], Depends(_form)]
"""Read in the event loop, used in a thread: writing waits for the database."""


@dataclass(frozen=True, slots=True)
class PageForms:
    """Handlers of the forms; one method per form."""

    _engine: Engine
    _frame: PageFrame
    _targets: Sequence[WebhookTarget]
    _learner: Learner | None
    _cases: CaseWriter | None
    _labels: LabelWriter | None = None

    def suspend(self, model: str, name: str, form: Fields) -> Response:
        """Suspend an assertion for some time, or until somebody resumes."""
        until = _until(form) or quality.FOREVER_US
        with write(self._engine) as connection:
            quality.suspend(connection, model, name, until_us=until, reason="by hand, on its page")
        return _back(form)

    def resume(self, model: str, name: str, form: Fields) -> Response:
        """Let a suspended assertion judge again."""
        with write(self._engine) as connection:
            quality.resume(connection, model, name, now_us=now_us())
        return _back(form)

    def review(self, form: Fields) -> Response:
        """Review a flag: was the model wrong?."""
        flag, is_error = form.get("flag", ""), form.get("is_error") == "1"
        with write(self._engine) as connection:
            reviews.give(connection, flag, is_error=is_error, source="page", now_us=now_us())
        return _back(form)

    def add_case(self, model: str, form: Fields) -> Response:
        """Write a flagged record as a case, and show its place. Into the model's suite file."""
        if self._cases is None or model not in self._frame.models():
            raise ProblemError(problem(404, f"there is no model {model!r}", field="model"))
        mode: Mode = "inv" if form.get("mode") == "inv" else "mft"
        label = (form.get("label", "").strip() or None) if mode == "mft" else None
        back = _next(form)
        try:
            wanted = CaseWanted(flag=form.get("flag", ""), mode=mode, label=label, by="page")
            made = self._cases.make(model, wanted)
            added = self._cases.add(model, made)
        except ProblemError as error:
            heading, text, asked = "No test case was written", error.problem.detail, None
            if error.problem.extra.get("field") == "label":
                heading = "What is the right answer?"
                text = f"No label of {error.problem.extra['record']} was sent, and no assertion proposes one."
                asked = form
            status = error.problem.status
            return self._frame.message(heading, text, status=status, model=model, back=back, asked=asked)
        told = {"added": "was written to", "changed": "was changed in", "present": "stood already in"}
        text = (
            f"Record {added.case} {told[added.state]} {added.file}, test {added.test}. pytest and the "
            "promotion gate ask it from now on; put the file under version control."
        )
        return self._frame.message("Test case", text, status=200, model=model, back=back)

    def label(self, model: str, form: Fields) -> Response:
        """Take a label or its withdrawal, and lead back to the record."""
        record_id = form.get("record", "")
        if self._labels is None or model not in self._frame.configured:
            raise ProblemError(problem(404, f"there is no model {model!r} under watch", field="model"))
        if read_record(self._engine, model, record_id) is None:
            if why := why_gone(self._engine, model, record_id):
                raise ProblemError(problem(410, f"record {record_id!r} of {model} {why}", field="record"))
            raise ProblemError(problem(404, f"{model} has no record {record_id!r}", field="record"))
        back = record_link(model, record_id)
        try:
            withdraws = "withdraw" in form
            value = None if withdraws else label_value(form, self._labels.classes(model))
            self._labels.give(model, record_id, value, form=form.get("key", ""))
        except (ValueError, ProblemError) as error:
            status, text = 422, str(error)
            if isinstance(error, ProblemError):
                status, text = error.problem.status, error.problem.detail
            return self._frame.message("The label was not taken", text, status=status, model=model, back=back)
        return RedirectResponse(f"{back}?labelled", status_code=303, headers=HEADERS)

    def incident(self, request: Request, incident: str, form: Fields) -> Response:
        """Acknowledge, mute or resolve an incident."""
        action, note = form.get("action", ""), form.get("note", "").strip()[:NOTE_LETTERS]
        act(
            self._engine, incident, action,
            until_us=_until(form), note=note, who=visitor_of(request).name, targets=self._targets,
        )  # fmt: skip
        return _back(form)

    def rollback(self, request: Request, model: str, form: Fields) -> Response:
        """Make the version that the champion replaced champion again."""
        reason, by = form.get("reason", "")[:NOTE_LETTERS], visitor_of(request).name
        to = form.get("to") or None  # the one that the page named, whoever was faster
        roll_back(self._engine, model, to=to, reason=reason, by=by, targets=self._targets)
        return _back(form)

    def quarantine(self, model: str, form: Fields) -> Response:
        """Retry or drop a quarantined record. Without one, all of a dataset are retried."""
        action = form.get("action", "")
        records = [form["record"]] if "record" in form else []
        if action not in ("retry", "drop") or (action == "drop" and not records):
            detail = f"retry, or drop of a record, expected, got {action[:20]!r}"
            raise ProblemError(problem(422, detail, field="action"))
        asked: Action = "drop" if action == "drop" else "retry"
        with write(self._engine) as connection:
            settle(connection, asked, dataset=form.get("dataset", dataset_of(model)), records=records)
        return _back(form)

    def job(self, request: Request, model: str, form: Fields) -> Response:
        """Cancel an open job of the model, or retry a failed one."""
        action, job = form.get("action", ""), form.get("job", "")
        if action not in ("cancel", "retry"):
            detail = f"cancel or retry expected, got {action[:20]!r}"
            raise ProblemError(problem(422, detail, field="action"))
        try:
            with write(self._engine) as connection:
                if jobs.get(connection, job).model != model:
                    raise NotFound(f"model {model!r} has no job {job!r}")
                if action == "cancel":
                    jobs.cancel(connection, job, by=visitor_of(request).name, now_us=now_us())
                else:
                    jobs.retry(connection, job, now_us=now_us())
        except jobs.JobClosed as error:
            raise ProblemError(problem(409, str(error), field="job")) from error
        return _back(form)

    def learn(self, model: str, form: Fields) -> Response:
        """Learn from the newest stored records."""
        self._learning(model).start(model)
        return _back(form)

    def accept(self, model: str, form: Fields) -> Response:
        """Write one proposal, or all, into the model's file of learned assertions."""
        names = [form["name"]] if "name" in form else None
        seen = form.get("learned", "")
        active = quality.active_revisions(self._engine, model)
        learned_us = int(seen) if seen.isdecimal() else None
        self._learning(model).accept(model, names, active, learned_us=learned_us)
        return _back(form)

    def _learning(self, model: str) -> Learner:
        if self._learner is None or model not in self._frame.models():
            raise ProblemError(problem(404, f"there is no model {model!r}", field="model"))
        return self._learner


def _until(form: Mapping[str, str]) -> int | None:
    """The time that ``for_s`` of a form means, None without one."""
    try:
        seconds = float(form.get("for_s", "0"))
    except ValueError:
        raise ProblemError(problem(422, "for_s: seconds expected", field="for_s")) from None
    return now_us() + int(seconds * 1e6) if 0 < seconds < 1e9 else None


def _back(form: Mapping[str, str]) -> Response:
    """To the page that the form came from."""
    return RedirectResponse(_next(form), status_code=303, headers=HEADERS)


def _next(form: Mapping[str, str]) -> str:
    """Address of the page that the form came from, on no other host."""
    there = form.get("next", "/")
    is_ours = there.startswith("/") and not there.startswith(("//", "/\\")) and "\n" not in there
    at = f"#flag-{quote(form['flag'], safe='')}" if "flag" in form else ""
    return there + at if is_ours else "/"
