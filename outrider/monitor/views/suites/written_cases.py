"""Flagged records as suite file cases, read from stores, unrun."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from pydantic import Field, model_validator

from outrider.assertions import Batch
from outrider.behavioral_tests.suite_file import WrittenTest, add_case
from outrider.behavioral_tests.suite_file.adding import State
from outrider.dataops.datasets import incident_cases
from outrider.dataops.datasets.collect import in_type_of_classes
from outrider.dataops.datasets.incident_cases import IncidentRecord, Mode, NoAnswer, NoCase, RightAnswer
from outrider.dataops.journal.stored_rows import has_row
from outrider.dataops.payloads.columns import forms_of
from outrider.dataops.payloads.payloads import payload_columns
from outrider.errors import ConfigError
from outrider.monitor.http.common import RequestBody, known_model
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.payloads import open_payloads
from outrider.monitor.views.service import Service


class CaseWanted(RequestBody):
    """Request to turn a record into a test case."""

    flag: str | None = None
    record_id: str | None = None
    mode: Mode = "mft"
    label: Any = None
    """The right answer; None takes the label that came, else what assertions propose."""
    variants: list[dict[str, Any]] | None = Field(default=None, min_length=1, max_length=100)
    """Changed copies of the inputs for ``inv``; None takes that of the live test that failed."""
    test: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the test for given variants."""
    by: str = Field(default="human", max_length=200)
    """Who says so."""
    write: bool = True

    @model_validator(mode="after")
    def _one(self) -> "CaseWanted":
        if (self.flag is None) == (self.record_id is None):
            raise ValueError("flag or record_id expected, and only one of them")
        if self.label is not None and self.mode == "inv":
            raise ValueError("label belongs to mode mft: an invariance needs no right answer")
        return self


@dataclass(frozen=True, slots=True)
class AddedCase:
    """Added case, its ``file`` below the configuration as relative path."""

    file: str
    test: str
    case: str
    state: State


class CaseWriter:
    """Writer of stored records as cases of suite files."""

    def __init__(self, service: Service) -> None:
        self._engine, self._blocks, self._settings = service.engine, service.blocks, service.settings

    def make(self, model: str, wanted: CaseWanted) -> WrittenTest:
        """A test whose one case is the record.

        Raises
        ------
        NotFound
            If there is no such model, flag or record.
        ProblemError
            If the record's payload has expired, or it says nothing as a case.
        """
        own = known_model(self._settings, model)
        with self._engine.connect() as connection:
            incident = incident_cases.find(connection, model, flag=wanted.flag, record_id=wanted.record_id)
            batch = self._record(incident)
            name = f"outputs.{own.target}"
            said = batch.arrow(name)[0].as_py() if batch.has(name) else None
            known = incident_cases.right_answer(connection, incident, own.target, said)
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        try:
            if wanted.mode == "mft":
                answer = known if wanted.label is None else RightAnswer(wanted.label, wanted.by)
                answer = _checked(answer, own, incident)
                return incident_cases.as_mft(incident, batch, answer, target=own.target, at=at)
            return incident_cases.as_inv(
                incident,
                batch,
                wanted.variants,
                target=own.target,
                name=wanted.test,
                by=wanted.by,
                at=at,
            )
        except NoAnswer as error:
            missing = problem(409, str(error), record=incident.record_id, field="label")
            raise ProblemError(missing) from error
        except (NoCase, ConfigError) as error:
            raise ProblemError(problem(409, str(error), record=incident.record_id)) from error

    def add(self, model: str, test: WrittenTest) -> AddedCase:
        """Put a case into the model's suite file, never twice.

        Raises
        ------
        ProblemError
            If the file cannot be written, or holds something else under that name.
        """
        path = self._settings.incident_suite(model)
        try:
            state = add_case(path, test)
        except (ConfigError, OSError) as error:
            raise ProblemError(problem(409, f"{self._told(path)} was not written: {error}")) from error
        return AddedCase(self._told(path), test.name, test.cases[0].id, state)

    def _record(self, incident: IncidentRecord) -> Batch:
        batch = self._blocks.batch(incident.seq)
        if batch is None or not has_row(batch, incident.row):
            detail = f"the payload of {incident.record_id} has expired: its inputs are no longer known"
            raise ProblemError(problem(409, detail, record=incident.record_id))
        one = batch.slice(incident.row, 1)
        forms = forms_of(self._settings.models[incident.model].columns)
        names = [name for name in payload_columns(one) if not one.is_null(name).all()]
        if encoded := [name for name in names if name not in forms or forms[name].kind != "text"]:
            detail = f"{encoded[0]}: a suite file holds texts and numbers, no payload: test it in Python"
            raise ProblemError(problem(409, detail, record=incident.record_id))
        opened = open_payloads(self._settings, incident.model, may_fetch=False).open(one)
        if opened.faults:
            raise ProblemError(problem(409, opened.faults[0], record=incident.record_id))
        return opened.batch

    def _told(self, path: Path) -> str:
        base = self._settings.base.resolve()
        return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def as_json(test: WrittenTest) -> Any:
    """A test as JSON-ready values."""
    return msgspec.to_builtins(test)


def _checked(answer: RightAnswer | None, own: ModelSettings, incident: IncidentRecord) -> RightAnswer | None:
    if answer is None or not own.classes:
        return answer
    try:
        value = in_type_of_classes(answer.value, own.classes)
    except ValueError as error:
        raise NoCase(f"{incident.record_id}: {error}") from error
    return RightAnswer(value, answer.by)
