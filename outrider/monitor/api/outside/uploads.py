"""The API of uploaded versions: announced, sent in pieces, registered."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.payloads.objects import LocalObjects
from outrider.monitor.http.declared import Declared, Time
from outrider.monitor.http.visitors import GOES_ON, visitor_of
from outrider.monitor.settings.config import Settings

from .version_uploads import VersionRequest, VersionUploads

_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class UploadFile(TypedDict):
    """Announced file, and its received bytes."""

    name: str
    bytes: int
    received: int
    url: str
    """Where its bytes from ``received`` on are sent to, with PUT."""


class Upload(TypedDict):
    """Upload of a version."""

    upload: str
    model: str
    kind: str
    status: Literal["open", "done"]
    version: str | None
    job: str | None
    until: Time | None
    """Removed then, if it is not finished."""
    files: list[UploadFile]
    complete: str
    """Where to POST once all is there."""


class Received(TypedDict):
    """Bytes of a file that are there."""

    name: str
    received: int


class RegisteredVersion(TypedDict):
    """Registered version, and the job of its gate."""

    model: str
    version: str
    job: str


def upload_routes(engine: Engine, settings: Settings, objects: LocalObjects) -> APIRouter:
    """Router of uploaded versions."""
    router = APIRouter(prefix="/v1", tags=["models"])
    uploads = VersionUploads(engine, settings, objects)

    @router.post("/models/{model}/versions", status_code=201, response_model=Declared[Upload])
    def begin_upload(
        model: str, body: VersionRequest, request: Request, response: Response
    ) -> dict[str, Any]:
        """Begin the upload of a version: a challenger, which the gate judges.

        ``kind`` is ``safetensors`` (weights of the champion's architecture), ``onnx``, ``hf`` (a Hugging
        Face folder), ``adapter`` (PEFT) or ``endpoint`` (``url`` instead of files). The answer says where
        each file is sent to. A job that waits for a version begins one with its token, and no other.
        """
        made = uploads.begin(model, body, visitor_of(request))
        response.headers["location"] = f"/v1/uploads/{made['upload']}"
        return made

    @router.get("/uploads/{upload}", response_model=Declared[Upload])
    def get_upload(upload: str, request: Request) -> dict[str, Any]:
        """Upload with the received bytes of each file."""
        return uploads.get(upload, visitor_of(request))

    @router.put(
        "/uploads/{upload}/files/{name:path}",
        response_model=Declared[Received],
        openapi_extra={"requestBody": {"required": True, "content": _OCTETS}},
    )
    async def put_piece(
        upload: str, name: str, request: Request, offset: Annotated[int, Query(ge=0, le=2**62)] = 0
    ) -> dict[str, Any]:
        """Append bytes to a file at ``offset``: the rest of it, or any piece.

        409 with ``received`` where so many bytes are there, or another request goes on with the file.
        """
        setattr(request.state, GOES_ON, True)  # its beginning is in the log
        received = await uploads.append(upload, name, offset, request, visitor_of(request))
        return {"name": name, "received": received}

    @router.post("/uploads/{upload}/complete", status_code=201, response_model=Declared[RegisteredVersion])
    def complete_upload(upload: str, request: Request) -> dict[str, Any]:
        """Check everything that was sent and register the version; the gate is queued.

        422 says which file or tensor is not as expected. Asked again, it answers the same.
        """
        return uploads.complete(upload, visitor_of(request))

    @router.delete("/uploads/{upload}", status_code=204)
    def drop_upload(upload: str, request: Request) -> None:
        """Remove an unfinished upload."""
        uploads.drop(upload, visitor_of(request))

    return router
