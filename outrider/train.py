"""Client of a training that runs outside the service: fetch, report, upload.

Standard library alone, so that it runs inside anybody's training image.

>>> job = Job("http://127.0.0.1:8642", "job_1", "orj_secret")
>>> job
Job('http://127.0.0.1:8642', 'job_1')
"""

import hashlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

__all__ = ["Job", "JobRefused", "RegisteredUpload"]

_PIECE_BYTES = 8_388_608
_STEP_BYTES = 1_048_576
_TIMEOUT_S = 60.0
_CHECK_S = 1800.0
"""For the check of everything at the end."""
_PATIENCE_S = 300.0
"""For a service that cannot be reached, or is busy."""
_REPORT_S = 1.0
_LOG_LINES = 50
_TRY_AGAIN = (408, 425, 429, 502, 503, 504, 507)
_SUFFIXES = (".json", ".txt", ".model", ".safetensors", ".jinja")


class JobRefused(RuntimeError):  # noqa: N818 - reads as the event it is
    """Answer of the service that no repetition changes.

    Attributes
    ----------
    status
        Of HTTP; 401 for a token that is used twice, late or for another job.
    problem
        The service's own words, with members such as ``tensor``, ``expected`` and ``got``.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail', 'no reason given')}")
        self.status = status
        self.problem = problem


class RegisteredUpload(dict[str, Any]):
    """Answer to an upload: ``model``, ``version`` and ``job``."""


class Job:
    """Training job that waits for a version.

    As a context manager it reports an exception as the job's failure.

    Parameters
    ----------
    url
        Address of the service.
    id
        Of the job.
    token
        Of the event ``retrain.requested``.
    ca
        File of certificates for a service with its own authority.

    Examples
    --------
    ::

        with Job.from_event(body) as job:
            rows = pyarrow.parquet.read_table(job.fetch(folder))
            ...
            job.progress(loss=0.3, step=100, steps=1000)
            job.upload(folder / "model.onnx")
    """

    def __init__(self, url: str, id: str, token: str, *, ca: str | None = None) -> None:
        self.url, self.id, self._token, self._ca = url.rstrip("/"), id, token, ca
        self._task: dict[str, Any] | None = None
        self._reported = float("-inf")

    def __repr__(self) -> str:
        return f"Job({self.url!r}, {self.id!r})"

    @classmethod
    def from_event(cls, body: bytes | str | Mapping[str, Any], *, url: str | None = None) -> "Job":
        """Job of the event ``retrain.requested``, whose signature the receiver has verified.

        Parameters
        ----------
        body
            The event, or its ``data`` alone.
        url
            Address of the service as it is called here; by default ``OUTRIDER_URL``, else that of the event.

        Raises
        ------
        ValueError
            If the event is another one, or its job is not trained outside.
        """
        event: Mapping[str, Any] = json.loads(body) if isinstance(body, bytes | str) else body
        data = event.get("data", event)
        if event.get("type", "retrain.requested") != "retrain.requested" or not isinstance(data, Mapping):
            raise ValueError(f"an event retrain.requested expected, got {event.get('type')!r}")
        if missing := [name for name in ("job", "token", "task") if not data.get(name)]:
            raise ValueError(
                f"data.{missing[0]} is missing: the model needs trainer = 'external' in [models.*.retrain]"
            )
        told = str(data["task"]).partition("/v1/")[0]
        return cls(url or os.environ.get("OUTRIDER_URL") or told, str(data["job"]), str(data["token"]))

    @classmethod
    def from_env(cls) -> "Job":
        """Job of the environment.

        ``OUTRIDER_EVENT`` holds the event or names its file; or ``OUTRIDER_URL``, ``OUTRIDER_JOB`` and
        ``OUTRIDER_JOB_TOKEN`` say the same.

        Raises
        ------
        ValueError
            If one of them is missing.
        """
        if event := os.environ.get("OUTRIDER_EVENT"):
            return cls.from_event(event if event.lstrip().startswith("{") else Path(event).read_bytes())
        names = ("OUTRIDER_URL", "OUTRIDER_JOB", "OUTRIDER_JOB_TOKEN")
        if missing := [name for name in names if not os.environ.get(name)]:
            raise ValueError(f"{missing[0]} is not set; OUTRIDER_EVENT, or {', '.join(names)} expected")
        url, id_, token = (os.environ[name] for name in names)
        return cls(url, id_, token, ca=os.environ.get("OUTRIDER_CA"))

    # ---- what is learned from

    @property
    def task(self) -> dict[str, Any]:
        """Dataset, champion, settings, target, inputs, classes and deadline."""
        if self._task is None:
            self._task = self._json("GET", f"/v1/retrains/{quote(self.id)}/task")
        return self._task

    def fetch(self, folder: str | os.PathLike[str], which: str = "fresh") -> Path:
        """Parquet file of the rows to learn from, in ``folder``.

        A download that was cut goes on.

        Parameters
        ----------
        which
            ``fresh``, or ``replay`` for old rows that are rehearsed against forgetting.
        """
        told = self.task["dataset" if which == "fresh" else which]
        if told is None:
            raise ValueError(f"the job has no {which} dataset")
        name = f"{which}-{told['digest'][:16]}.parquet"
        return self._download(told["url"], Path(folder) / name, sha256=None)

    def champion(self, folder: str | os.PathLike[str]) -> Path:
        """``folder`` with the files of the champion, verified by digest.

        Empty where the champion is a function, an endpoint or known by its answers alone.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for file in (self.task["champion"] or {}).get("files", ()):
            parts = Path(file["name"]).parts
            if ".." in parts or Path(file["name"]).is_absolute():
                raise ValueError(f"a name below the folder expected, got {file['name']!r}")
            self._download(file["url"], place.joinpath(*parts), sha256=file["sha256"])
        return place

    # ---- what is told

    def progress(
        self,
        *,
        loss: float | None = None,
        step: int | None = None,
        steps: int | None = None,
        epoch: int | None = None,
        epochs: int | None = None,
        rows_s: float | None = None,
        eta_s: float | None = None,
    ) -> None:
        """Report the place of the training, once a second at most.

        A lost report is no error.

        Raises
        ------
        JobRefused
            If the job has ended, was cancelled or is late: nobody waits for the training any more.
        """
        now = time.monotonic()
        if now - self._reported < _REPORT_S:
            return
        self._reported = now
        told = {"loss": loss, "step": step, "steps": steps, "epoch": epoch, "epochs": epochs}
        told |= {"rows_s": rows_s, "eta_s": eta_s}
        body = {name: value for name, value in told.items() if value is not None and value == value}
        try:
            self._json("POST", f"/v1/retrains/{quote(self.id)}/progress", body, patience_s=0.0)
        except OSError:
            return
        except JobRefused as error:
            if error.status in (401, 404, 409):
                raise

    def fail(self, message: str, log: str = "") -> None:
        """Close the job as failed, with the last lines of a log."""
        lines = [line[:2000] for line in log.splitlines()[-_LOG_LINES:]]
        body = {"error": message[:2000] or "failed", "log": lines}
        self._json("POST", f"/v1/retrains/{quote(self.id)}/failure", body)

    # ---- what is made

    def upload(
        self,
        path: str | os.PathLike[str],
        *,
        kind: str | None = None,
        note: str = "",
        inputs: tuple[str, ...] = (),
        classes: tuple[int | str, ...] = (),
    ) -> RegisteredUpload:
        """Upload a version: safetensors, ONNX, Hugging Face folder or adapter.

        In pieces; goes on where a cut connection left it. Pickles are refused.

        Raises
        ------
        JobRefused
            422 with the file or tensor that is not as the champion's; 401 for a second version.
        """
        place = Path(path)
        files = _files(place)
        kind = kind or _kind(place, files)
        told = [
            {"name": name, "bytes": file.stat().st_size, "sha256": _sha256(file)}
            for name, file in files.items()
        ]
        return self._announce(
            {"kind": kind, "files": told, "note": note, "inputs": inputs, "classes": classes}, files
        )

    def register_endpoint(self, url: str, *, note: str = "") -> RegisteredUpload:
        """Register a model that answers at an address, instead of files."""
        return self._announce({"kind": "endpoint", "url": url, "note": note}, {})

    def _announce(self, body: Mapping[str, Any], files: Mapping[str, Path]) -> RegisteredUpload:
        made = self._json("POST", self.task["upload"], {**body, "job": self.id})
        for file in made["files"]:
            self._send(made["upload"], file, files[file["name"]])
        return RegisteredUpload(self._json("POST", made["complete"], {}, timeout_s=_CHECK_S))

    def __enter__(self) -> "Job":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        """Report an exception, which is raised on."""
        if kind is None or (isinstance(error, JobRefused) and error.status == 401):
            return
        import traceback  # takes as long to load as the client itself, and is for failures alone

        lines = "".join(traceback.format_exception(kind, error, place))
        try:
            self.fail(f"{kind.__name__}: {error}"[:2000], lines)
        except (OSError, JobRefused):
            return  # the exception itself says more

    # ---- inside

    def _send(self, upload: str, file: Mapping[str, Any], path: Path) -> None:
        """Send the bytes of a file from where the service has them."""
        at, until = int(file["received"]), time.monotonic() + _PATIENCE_S
        with path.open("rb") as source:
            while at < file["bytes"]:
                source.seek(at)
                piece = source.read(_PIECE_BYTES)
                try:
                    told = self._json("PUT", f"{file['url']}?offset={at}", piece, patience_s=0.0)
                    at, until = int(told["received"]), time.monotonic() + _PATIENCE_S
                except (OSError, http.client.HTTPException):
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.2)
                    at = self._received(upload, file["name"])
                except JobRefused as error:
                    if error.status == 409 and "received" in error.problem:
                        at = int(error.problem["received"])
                    elif error.status not in (400, *_TRY_AGAIN) or time.monotonic() > until:
                        raise
                    else:
                        time.sleep(0.5)

    def _received(self, upload: str, name: str) -> int:
        told = self._json("GET", f"/v1/uploads/{quote(upload)}")
        return next(int(file["received"]) for file in told["files"] if file["name"] == name)

    def _download(self, url: str, path: Path, *, sha256: str | None) -> Path:
        """File of an address, whole or not at all under its name."""
        if path.exists() and (sha256 is None or _sha256(path) == sha256):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if self._append(url, part):
                    break
            except (OSError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        if sha256 is not None and _sha256(part) != sha256:
            part.unlink()
            raise ValueError(f"{path.name}: sha256 {sha256} expected, another file came: fetch it again")
        part.replace(path)
        return path

    def _append(self, url: str, part: Path) -> bool:
        """Append what is missing; True once the file is whole."""
        at = part.stat().st_size if part.exists() else 0
        headers = {"range": f"bytes={at}-"} if at else {}
        with self._answer("GET", url, None, headers, _TIMEOUT_S) as answer:
            if at and answer.status == 416:  # it was whole already
                return True
            if answer.status not in (200, 206):
                raise _refused(answer)
            length = int(answer.headers.get("content-length", "0"))
            with part.open("ab" if answer.status == 206 else "wb") as file:
                came = 0
                while step := answer.read(_STEP_BYTES):
                    file.write(step)
                    came += len(step)
        return came == length

    def _json(
        self,
        method: str,
        url: str,
        body: object = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        patience_s: float = _PATIENCE_S,
    ) -> dict[str, Any]:
        """JSON of an answer; asks again while the service cannot be reached."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        headers = {} if content is None else {"content-type": kind}
        until, rest = time.monotonic() + patience_s, 0.2
        while True:
            try:
                with self._answer(method, url, content, headers, timeout_s) as answer:
                    if answer.status < 300:
                        told: dict[str, Any] = json.loads(answer.read() or b"{}")
                        return told
                    refused = _refused(answer)
                if refused.status not in _TRY_AGAIN or time.monotonic() > until:
                    raise refused
            except (OSError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise
            time.sleep(rest)
            rest = min(2 * rest, 5.0)

    def _answer(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> "_Exchange":
        full = url if "://" in url else self.url + url
        if urlsplit(full).netloc != urlsplit(self.url).netloc:
            raise ValueError(f"{full}: an address of {self.url} expected: the token goes nowhere else")
        given = {"authorization": f"Bearer {self._token}", **headers}
        return _Exchange(method, full, body, given, timeout_s, self._ca)


class _Exchange:
    """One request and its answer, on a connection of its own."""

    def __init__(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        ca: str | None,
    ) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            tls = ssl.create_default_context(cafile=ca)
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            self._connection.request(method, target, body, dict(headers))
            self._answer = self._connection.getresponse()
        except (BrokenPipeError, ConnectionResetError):
            self._answer = self._early()
        except BaseException:
            self._connection.close()
            raise

    def _early(self) -> http.client.HTTPResponse:
        """Answer of a service that refused before it had read the body."""
        try:
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise ConnectionResetError("the service closed the connection") from None

    def __enter__(self) -> http.client.HTTPResponse:
        return self._answer

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _refused(answer: http.client.HTTPResponse) -> JobRefused:
    try:
        problem = json.loads(answer.read(1_048_576))
    except ValueError:
        problem = {"detail": answer.reason}
    return JobRefused(answer.status, problem if isinstance(problem, dict) else {})


def _files(place: Path) -> dict[str, Path]:
    if place.is_file():
        return {place.name: place}
    if not place.is_dir():
        raise FileNotFoundError(f"{place} does not exist")
    found = {
        path.name: path for path in sorted(place.iterdir()) if path.suffix in _SUFFIXES and path.is_file()
    }
    if "adapter_config.json" in found:
        found = {n: p for n, p in found.items() if n in ("adapter_config.json", "adapter_model.safetensors")}
    if not found:
        raise ValueError(f"{place} has no file {', '.join(f'*{end}' for end in _SUFFIXES)}")
    return found


def _kind(place: Path, files: Mapping[str, Path]) -> str:
    if place.is_dir():
        return "adapter" if "adapter_config.json" in files else "hf"
    if place.suffix in (".safetensors", ".onnx"):
        return place.suffix[1:]
    raise ValueError(
        f"{place.name}: .safetensors, .onnx or a folder expected; pickles (.pt, .pkl, .joblib) are never read"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
