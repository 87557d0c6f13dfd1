"""The API of uploaded versions: announced, sent in pieces, registered."""

from typing import Annotated

from fastapi import Query, Request, Response
from typing_extensions import TypedDict

from outrider.monitor.http.routes import change, view
from outrider.monitor.http.visitors import GOES_ON, visitor_of
from outrider.monitor.views.service import Service

from .versions import RegisteredVersion, Upload, VersionRequest, VersionUploads

_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class Received(TypedDict):
    """Bytes of a file that are there."""

    name: str
    received: int


def _uploads(service: Service) -> VersionUploads:
    return VersionUploads(service.engine, service.settings, service.objects)


@change("POST /v1/models/{model}/versions", scope="promote", jobs="waiting", tag="models", status_code=201)
def begin_upload(
    service: Service, model: str, body: VersionRequest, request: Request, response: Response
) -> Upload:
    """Begin the upload of a version: a challenger, which the gate judges.

    ``kind`` is ``safetensors`` (weights of the champion's architecture), ``onnx``, ``hf`` (a Hugging
    Face folder), ``adapter`` (PEFT) or ``endpoint`` (``url`` instead of files). The answer says where
    each file is sent to. A job that waits for a version begins one with its token, and no other.
    """
    made = service.one(_uploads).begin(model, body, visitor_of(request))
    response.headers["location"] = f"/v1/uploads/{made['upload']}"
    return made


@view("/v1/uploads/{upload}", scope="promote", models="route", jobs="ended", tag="models")
def get_upload(service: Service, upload: str, request: Request) -> Upload:
    """Upload with the received bytes of each file."""
    return service.one(_uploads).get(upload, visitor_of(request))


@change(
    "PUT /v1/uploads/{upload}/files/{name:path}",
    scope="promote",
    models="route",
    jobs="waiting",
    tag="models",
    openapi_extra={"requestBody": {"required": True, "content": _OCTETS}},
)
async def put_piece(
    service: Service,
    upload: str,
    name: str,
    request: Request,
    offset: Annotated[int, Query(ge=0, le=2**62)] = 0,
) -> Received:
    """Append bytes to a file at ``offset``: the rest of it, or any piece.

    409 with ``received`` where so many bytes are there, or another request goes on with the file.
    """
    setattr(request.state, GOES_ON, True)  # its beginning is in the log
    received = await service.one(_uploads).append(upload, name, offset, request, visitor_of(request))
    return {"name": name, "received": received}


@change(
    "POST /v1/uploads/{upload}/complete",
    scope="promote",
    models="route",
    jobs="ended",
    tag="models",
    status_code=201,
)
def complete_upload(service: Service, upload: str, request: Request) -> RegisteredVersion:
    """Check everything that was sent and register the version; the gate is queued.

    422 says which file or tensor is not as expected. Asked again, it answers the same.
    """
    return service.one(_uploads).complete(upload, visitor_of(request))


@change(
    "DELETE /v1/uploads/{upload}",
    scope="promote",
    models="route",
    jobs="waiting",
    tag="models",
    status_code=204,
)
def drop_upload(service: Service, upload: str, request: Request) -> None:
    """Remove an unfinished upload."""
    service.one(_uploads).drop(upload, visitor_of(request))
