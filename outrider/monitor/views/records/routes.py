"""Routes of records: one record, its pictures and label, and the export."""

import sys
from dataclasses import asdict
from typing import Annotated, Any, NotRequired, TypeAlias, get_type_hints

from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from outrider.dataops.datasets.versions import Provenance, RowFlag
from outrider.dataops.payloads.payloads import without_payloads
from outrider.monitor.http.declared import FieldsOf, declared
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.responses import binary, encoded
from outrider.monitor.http.routes import form, page, view
from outrider.monitor.queries import queries
from outrider.monitor.queries.payload_views import flatten, picture
from outrider.monitor.queries.queries import (
    DatasetStay,
    RecordView,
    list_descriptions,
    read_answer,
    read_record,
    why_gone,
)
from outrider.monitor.views.service import Service
from outrider.monitor.web.forms import Fields
from outrider.monitor.web.highlights import fields_of, fields_of_part
from outrider.monitor.web.label_form import label_value
from outrider.monitor.web.pictures import PICTURE_HEADERS, draw, make_card, png, record_link, record_pictures

NEIGHBOURS = 5


StayFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        DatasetStay,
        "DatasetStay",
        without=("origin",),
        more=get_type_hints(Provenance) | {"flags": list[RowFlag]},
    ),
]


RecordFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        RecordView,
        "StoredRecord",
        more={
            "record": dict[str, Any] | None,
            "payload_expired": bool,
            "replica_outputs": NotRequired[dict[str, Any]],
            "datasets": list[StayFacts],
        },
    ),
]


@page("/m/{model}/records/{record_id:path}", scope="read")
def record_page(service: Service, request: Request, model: str, record_id: str) -> Response:
    """Page of one record."""
    view = queries.read_record(service.engine, model, record_id)
    if view is None and (why := queries.why_gone(service.engine, model, record_id)):
        return service.frame.message(
            "Gone", f"Record {record_id!r} of {model} {why}.", status=410, model=model
        )
    if view is None:
        return service.frame.message("Not found", f"{model} has no record {record_id!r}.", model=model)
    payload = service.blocks.record(view.seq, view.row)
    batch = service.blocks.batch(view.seq)
    outputs = "Outputs"
    if payload is not None and not payload.get("outputs"):
        outputs = "Outputs of the replica"
        payload = payload | {"outputs": service.cards.answer(view, view.id)}
    about = list_descriptions(service.engine, model)
    fields, _ = fields_of(payload, view.flags, about, most=sys.maxsize)
    marked = {one.name: one for one in fields}
    labelled = "labelled" in request.query_params
    context: dict[str, Any] = {
        "r": view,
        "payload": payload,
        "pictures": record_pictures(batch, model, record_id, view.row),
        "cards": [make_card((flag,), service.blocks.batch) for flag in view.flags],
        "neighbours": _neighbours(service, view),
        "labels": service.labels,
        "labelled": labelled,
        "can_label": service.labels is not None and model in service.frame.configured,
        "parts": [
            (title, fields_of_part((payload or {}).get(part, {}), part, marked))
            for part, title in (
                ("inputs", "Inputs"),
                ("outputs", outputs),
                ("label", "Label sent with it"),
                ("attrs", "Attributes"),
            )
        ],
    }
    return service.frame.page(request, "record.html", model, "/records", context, refresh=labelled)


@page("/m/{model}/images/records/{column}/{record_id:path}", scope="read")
def record_image_page(service: Service, model: str, column: str, record_id: str) -> Response:
    """PNG of a record's tensor column, or its encoded image."""
    view = queries.read_record(service.engine, model, record_id)
    batch = service.blocks.batch(view.seq) if view else None
    if batch is None or view is None:
        return png(None)
    if (found := picture(batch, view.row, column, service.payloads)) is not None:
        return Response(found[0], media_type=found[1], headers=PICTURE_HEADERS)
    return png(draw(batch, view.row, column))


def _neighbours(service: Service, view: queries.RecordView) -> list[tuple[str, str, str, bool]]:
    """Pictures around a record: of its entity when it has one, else of the stream."""
    batch = service.blocks.batch(view.seq)
    if batch is None:
        return []
    rows = list(range(batch.rows))
    if view.entity is not None:
        entities = batch.column("entity")
        rows = [row for row in rows if entities[row] == view.entity]
    before = [row for row in rows if row < view.row][-NEIGHBOURS:]
    shown = [*before, view.row, *[row for row in rows if row > view.row][:NEIGHBOURS]]
    outputs = without_payloads(batch.slice(min(shown), max(shown) - min(shown) + 1)).to_records()
    pictures = []
    for row in shown if len(shown) > 1 else []:
        identity = str(batch.keys[row])
        outputs_of_row = outputs[row - min(shown)].get("outputs", {})
        caption = ", ".join(text for _, text in list(flatten(outputs_of_row))[:1]) or identity
        for source, _ in record_pictures(batch, view.model, identity, row)[:1]:
            pictures.append((source, caption, record_link(view.model, identity), row == view.row))
    return pictures


@form("POST /m/{model}/labels", scope="label")
def label_form(service: Service, model: str, form: Fields) -> Response:
    """Take a label or its withdrawal, and lead back to the record."""
    record_id = form.get("record", "")
    if service.labels is None or model not in service.frame.configured:
        raise ProblemError(problem(404, f"there is no model {model!r} under watch", field="model"))
    if read_record(service.engine, model, record_id) is None:
        if why := why_gone(service.engine, model, record_id):
            raise ProblemError(problem(410, f"record {record_id!r} of {model} {why}", field="record"))
        raise ProblemError(problem(404, f"{model} has no record {record_id!r}", field="record"))
    back = record_link(model, record_id)
    try:
        withdraws = "withdraw" in form
        value = None if withdraws else label_value(form, service.labels.classes(model))
        service.labels.give(model, record_id, value, form=form.get("key", ""))
    except (ValueError, ProblemError) as error:
        status, text = 422, str(error)
        if isinstance(error, ProblemError):
            status, text = error.problem.status, error.problem.detail
        return service.frame.message("The label was not taken", text, status=status, model=model, back=back)
    return RedirectResponse(f"{back}?labelled", status_code=303, headers=HEADERS)


@view("/v1/records/{model}/{record_id:path}", scope="read", response_model=declared(RecordFacts))
def record(service: Service, model: str, record_id: str) -> Response:
    """A record with its payload, flags, labels, live tests and dataset versions."""
    service.known(model)
    view = read_record(service.engine, model, record_id)
    if view is None and (why := why_gone(service.engine, model, record_id)):
        raise ProblemError(problem(410, f"record {record_id!r} of model {model!r} {why}"))
    if view is None:
        raise ProblemError(problem(404, f"model {model!r} has no record {record_id!r}"))
    body = asdict(view)
    for stay, row in zip(view.datasets, body["datasets"], strict=True):
        row |= stay.origin.to_dict()
        del row["origin"]
    stored = service.blocks.record(view.seq, view.row)
    body["record"] = stored
    body["payload_expired"] = stored is None
    if stored is not None and not stored.get("outputs"):  # a mirrored request: the replica answered
        body["replica_outputs"] = read_answer(service.engine, model, None, seq=view.seq, record_id=view.id)
    return encoded(body)


ARROW = "application/vnd.apache.arrow.stream"
NEXT = "x-outrider-next"


@view(
    "/v1/records",
    scope="read",
    response_class=Response,
    responses=binary(ARROW) | {204: {"description": "There is no further block"}},
)
def records(
    service: Service, model: str, after: Annotated[int, Query(ge=0, lt=2**63)] = 0, from_end: bool = False
) -> Response:
    """Next block of records behind ``after`` as an Arrow IPC stream; 204 at the end.

    The header ``x-outrider-next`` is the ``after`` of the following request. With ``from_end`` it is that
    of the records to come, and nothing else is answered.
    """
    service.model(model)
    if from_end:
        return Response(status_code=204, headers={NEXT: str(service.journal.last_seq())})
    while blocks := service.journal.read(after, limit=16, model=model):
        for block in blocks:
            after = block.seq
            if block.kind == "records" and not block.damage:
                return Response(block.payload, media_type=ARROW, headers={NEXT: str(after)})
    return Response(status_code=204, headers={NEXT: str(after)})
