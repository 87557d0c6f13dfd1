"""Intake routes as a raw ASGI application in front of FastAPI, measured several times as fast."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from outrider.errors import JournalFull
from outrider.monitor.http.body_places import holder_of
from outrider.monitor.http.limits import (
    ASGIApp,
    BodyBounds,
    ByteBudget,
    ClientGone,
    Receive,
    Scope,
    Send,
    check_json,
    read_body,
)
from outrider.monitor.http.problem import CONTENT_TYPE, Problem, ProblemError, problem
from outrider.monitor.http.quotas import Meter, QuotaExceeded
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.http.responses import send_bytes
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.process.collector import collector_paused
from outrider.monitor.process.logs import RecordLog

from .decode import Decoded, Decoder
from .group_commit import GroupCommit, QueueFull, WriterUnavailable
from .protocols.base import (
    AddsError,
    Arrival,
    IntakeProtocol,
    ParsedRequest,
    QuickIntake,
    SenderReply,
    SpeaksErrors,
    rejections,
)
from .rejections import Rejections

log = logging.getLogger(__name__)

_IN_THREAD_BYTES = 32_768
"""Larger bodies are decoded in a thread, so that the event loop keeps answering."""
_QUICK_BYTES = 262_144
"""Larger bodies are decoded in a thread even on the fast path."""
_DISK_RETRY_S = 5


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of one request: bytes after decompression, inflation ratio, bytes of parsed JSON objects."""

    max_bytes: int
    max_ratio: int
    max_parsed: int = 201_326_592
    of_models: Mapping[str, int] = field(default_factory=dict)

    @property
    def most_bytes(self) -> int:
        """Bound of a body before its model is known."""
        return max(self.max_bytes, *self.of_models.values(), 0)

    def check(self, models: Iterable[str], size: int) -> None:
        for model in models:
            most = self.of_models.get(model, self.max_bytes)
            if size > most:
                where = (
                    f"models.{model}.intake.body_bytes" if model in self.of_models else "limits.body_bytes"
                )
                raise ProblemError(problem(413, f"a body of {size} bytes, at most {most} expected ({where})"))


class HotRoutes:
    """Intake routes, answered after the durable commit; everything else goes to ``app``."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        intakes: Sequence[IntakeProtocol],
        decoder: Decoder,
        writer: GroupCommit,
        limits: BodyLimits,
        budget: ByteBudget,
        metrics: Metrics,
        refusals: RefusalBook | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._app = app
        self._intakes = tuple(intakes)
        # Asked once: whether a class follows a protocol takes longer to tell than to read a record.
        self._quick = {one.name: one.quick for one in self._intakes if isinstance(one, QuickIntake)}
        self._decoder = decoder
        self._writer = writer
        self._limits = limits
        self._bounds = BodyBounds(limits.most_bytes, limits.max_ratio)
        self._budget = budget
        self._now_us = now_us
        self._record_log = RecordLog(log)
        self._refusals = refusals or RefusalBook()
        # Two: each may hold a body's worth of Python objects, many times its bytes.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="decode")
        self._rejected = metrics.counter("outrider_records_rejected_total")
        self._responses = metrics.counter("outrider_responses_total")
        self._bytes = metrics.counter("outrider_intake_bytes_total")
        self._accepted = {
            "records": metrics.counter("outrider_records_accepted_total"),
            "labels": metrics.counter("outrider_labels_accepted_total"),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        intake, headers = None, {}
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            intake = self._intake(scope, headers)
        if intake is None:
            await self._app(scope, receive, send)
            return
        held, holder = 0, holder_of(scope)

        def take(size: int) -> None:
            nonlocal held
            self._budget.take(size, holder)
            held += size

        try:
            answer = await self._take_in(intake, scope, headers, receive, take)
            self._count(intake, answer.status)
            await send_bytes(send, answer.status, answer.body, answer.content_type, answer.headers)
        except ClientGone:
            return
        except ProblemError as error:
            answer = self._refusal(intake, scope, error.problem)
            self._count(intake, answer.status)
            await send_bytes(send, answer.status, answer.body, answer.content_type, answer.headers)
        except Exception as error:  # the border of the request: one that breaks us stays alone
            log.exception("a request could not be answered")
            name = type(error).__name__
            internal = problem(500, f"internal error ({name}); the log has its traceback")
            answer = self._refusal(intake, scope, internal)
            self._count(intake, 500)
            await send_bytes(send, 500, answer.body, answer.content_type, answer.headers)
        finally:
            self._budget.give(held, holder)

    def _intake(self, scope: Scope, headers: Mapping[bytes, bytes]) -> IntakeProtocol | None:
        method, path = scope["method"], scope["path"]
        return next((one for one in self._intakes if one.matches(method, path, headers)), None)

    def _refusal(self, intake: IntakeProtocol, scope: Scope, why: Problem) -> SenderReply:
        if isinstance(intake, SpeaksErrors):
            return intake.refuse(_texts(dict(scope["headers"])), why)
        if isinstance(intake, AddsError):
            why = replace(why, extra={**why.extra, "error": intake.error(why)})
        return SenderReply(why.status, why.body(), CONTENT_TYPE, why.headers)

    async def _take_in(
        self,
        intake: IntakeProtocol,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        take: Callable[[int], None],
    ) -> SenderReply:
        state = scope.get("state", {})
        meter: Meter | None = state.get("meter")
        try:
            if meter is not None:
                meter.admit()
            body = await read_body(receive, headers, self._bounds, take=take)
            check_json(_json_of(headers, body), self._limits.max_parsed)
            self._bytes.inc(len(body))
            if meter is not None:
                meter.take(len(body))
            arrival = Arrival(
                scope["method"], scope["path"], _query(scope), _texts(headers), body, self._now_us(),
                state.get("models"),
            )  # fmt: skip
            reading, decoded = await self._read(intake, arrival)
        except ProblemError as error:
            if intake.name != "labels" and error.problem.status != 404:
                kinds = {413: "too_large", 429: "quota" if isinstance(error, QuotaExceeded) else "busy"}
                reason = kinds.get(error.problem.status, "malformed")
                self._rejected.labels(reason=reason).inc()
                self._refusals.note(model=_query(scope).get("model", ""), reason=reason)
            raise
        if meter is not None:
            meter.spend(decoded.accepted)
        is_records = reading.kind == "records"
        if is_records and decoded.rejected:
            self._note(decoded.rejected)
        if decoded.rejected and not decoded.accepted and not isinstance(intake, SpeaksErrors):
            raise ProblemError(_nothing_taken(decoded))
        await self._commit(
            decoded, reading, len(body), is_records=is_records,
            has_own_clock=arrival.query.get("clock") == "own",
        )  # fmt: skip
        return intake.answer(arrival, decoded)

    async def _read(self, intake: IntakeProtocol, arrival: Arrival) -> tuple[ParsedRequest, Decoded]:
        size = len(arrival.body)
        quick = self._quick.get(intake.name)
        if quick is not None and size <= _QUICK_BYTES and (reading := quick(arrival)):
            return self._build(reading, arrival)

        def read() -> tuple[ParsedRequest, Decoded]:
            found = quick(arrival) if quick is not None and size > _QUICK_BYTES else None
            if found is not None:
                return self._build(found, arrival)
            with collector_paused():
                return self._build(intake.read(arrival), arrival)

        if size <= _IN_THREAD_BYTES and not self._decoder.is_busy:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def _build(self, reading: ParsedRequest, arrival: Arrival) -> tuple[ParsedRequest, Decoded]:
        try:
            if self._limits.of_models or arrival.models is not None:
                sides = [half.part for half in reading.halves]
                models = {part.model for part in [*reading.parts, *sides]}
                _check_models(models, arrival.models)
                self._limits.check(models, len(arrival.body))
            decoded = self._decoder.build(
                reading.parts,
                reading.rejected,
                kind=reading.kind,
                received_us=arrival.received_us,
                halves=reading.halves,
            )
            reading.parts, reading.halves = [], []  # freed here, not by the event loop
        except BaseException:
            reading.settled(False)
            raise
        return reading, decoded

    async def _commit(
        self, decoded: Decoded, reading: ParsedRequest, size: int, *, is_records: bool, has_own_clock: bool
    ) -> None:
        is_durable = False
        try:
            if decoded.blocks or decoded.halves or reading.notes:
                await self._writer.submit(
                    decoded.blocks,
                    size,
                    halves=decoded.halves,
                    notes=reading.notes,
                    has_own_clock=has_own_clock,
                )
            is_durable = True
        except QueueFull as error:
            self._refuse(is_records, "busy", decoded)
            headers = {"retry-after": str(error.retry_after_s)}
            raise ProblemError(problem(429, str(error), headers=headers)) from None
        except JournalFull as error:
            self._refuse(is_records, "disk_full", decoded)
            headers = {"retry-after": str(_DISK_RETRY_S)}
            raise ProblemError(problem(507, str(error), headers=headers)) from None
        except WriterUnavailable as error:
            self._refuse(is_records, "busy", decoded)
            raise ProblemError(problem(503, str(error), headers={"retry-after": "1"})) from None
        finally:
            reading.settled(is_durable)
        for block in decoded.blocks:
            self._accepted[block.kind].labels(model=block.model).inc(block.rows)

    def _note(self, rejected: Rejections) -> None:
        rejected.note(self._rejected, self._refusals)
        for kind in rejected.kinds():
            self._record_log.note(
                "rejected",
                model=kind.model,
                record_id=kind.example,
                reason=kind.reason,
                field=kind.field,
                count=kind.count,
            )

    def _refuse(self, is_records: bool, reason: str, decoded: Decoded) -> None:
        if is_records:
            self._rejected.labels(reason=reason).inc(decoded.accepted)
            for block in (*decoded.blocks, *(half.block for half in decoded.halves)):
                self._refusals.note(model=block.model, reason=reason, count=block.rows)

    def _count(self, intake: IntakeProtocol, status: int) -> None:
        self._responses.labels(route=intake.name, status=f"{status // 100}xx").inc()


def _check_models(named: Iterable[str], models: frozenset[str] | None) -> None:
    """Refuse the whole request if one record is of a model that its key is not for."""
    if models is None:
        return
    if others := sorted(model for model in named if model not in models):
        known = ", ".join(sorted(models))
        raise ProblemError(problem(403, f"the key is for model {known} alone, not {others[0][:200]}"))


def _query(scope: Scope) -> dict[str, str]:
    query: bytes = scope.get("query_string", b"")
    if not query:
        return {}
    # Backwards: the first value of a parameter counts.
    return dict(reversed(parse_qsl(query.decode("utf-8", "replace"))))


def _json_of(headers: Mapping[bytes, bytes], body: bytes) -> bytes:
    """The part of a body that may be JSON: punctuation in other bytes means nothing."""
    kind = headers.get(b"content-type", b"")
    if b"framed" in kind:
        return body[8 : 8 + int.from_bytes(body[:8], "little")]
    return b"" if b"arrow" in kind or b"protobuf" in kind else body


def _texts(headers: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


def _nothing_taken(decoded: Decoded) -> Problem:
    first = decoded.rejected.listed[0]
    detail = f"no record could be taken; record {first.index}: {first.field}: {first.reason}"
    status = 410 if decoded.rejected.are_erased else 422
    return replace(problem(status, detail), extra={"accepted": 0} | rejections(decoded))
