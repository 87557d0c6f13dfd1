"""Hook inside a production service.

Copies the model's inputs and answers, and gets out of the way.

Standard library only, and one module, because it is also installed alone as ``outrider_client``. A call
snapshots its values into a bounded ring and returns; one daemon thread sends. Nothing here raises into the
caller, waits for the network, or lets a process hold more than 32 MB.

    client = Client(model="churn")              # finds the service and its key, as the command line does
    client.capture({"age": 41}, {"score": 0.91}, entity="u7")
"""

import _thread
import atexit
import contextlib
import functools
import io
import itertools
import json
import logging
import marshal
import math
import os
import random
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

__all__ = [
    "Client",
    "Counts",
    "OutriderMiddleware",
    "OutriderWsgiMiddleware",
    "UndeliveredError",
    "find_server",
    "watch",
]

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Fields: TypeAlias = Mapping[str, Any]
Circuit: TypeAlias = Literal["closed", "open", "half_open"]
Route: TypeAlias = Literal["records", "labels"]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
WsgiApp: TypeAlias = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Entry: TypeAlias = "tuple[_Segment, int, int, Sequence[Any]]"
"""Where the marshalled fields of a call stand, and the large values that they name by number."""

DEFAULT_URL = "http://127.0.0.1:8470"
RING_BYTES = 10_000_000
"""What all clients of a process hold, queued and in hand; the rest of 32 MB is for encoding and modules."""
MAX_RECORD_BYTES = 6_000_000
_MAX_PLAIN_BYTES = 500_000
"""Of numbers, short texts, lists and dictionaries: encoding takes some ten times that for a moment."""
_SEGMENT_BYTES = 262_144
_PAGE_BYTES = 4096
_SPARE_SEGMENTS = 16
_LONG_TEXT = 65_536
_INLINE_BYTES = 4096  # smaller arrays travel as JSON lists
_PLAIN = frozenset({bool, int, float, str, type(None)})
_EXIT_S = 1.5

_IDLE_S = 0.05
_BLOCK_ENTRIES = 512
_BLOCK_BYTES = 250_000
_PIECE_BYTES = 65_536
_ANSWER_BYTES = 4_000_000
_TIMEOUT_S = 10.0
_LONGEST_PAUSE_S = 5.0
_LONGEST_RETRY_AFTER_S = 30.0
_SLICE_S = 0.0001
_YIELD_S = 0.00005
_QUIET_S = 60.0
"""Refused records are logged this often at most: the service's log is not ours to fill."""
_LATER = frozenset({401, 403, 404, 407, 408, 421, 425, 429})
"""Statuses below 500 after which the same block may succeed: the key is rotated, the server started."""

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


class _Segment:
    """Memory that entries are written into one behind the other; once all are read it is written again.

    Fresh memory for every entry would cost its caller page faults, which are dearer than all the rest.
    """

    __slots__ = ("data", "end", "unread")

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.end = 0
        self.unread = 0


class _Memory:
    """Bytes that the clients of this process hold, and the one lock of their rings and counts.

    The lock may be taken again by its holder: a signal handler may capture too.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.held = 0
        self._spare: list[_Segment] = []

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes, if there is room."""
        with self.lock:
            if self.held + size > RING_BYTES:
                return False
            self.held += size
            while self._spare and self._over():
                self._spare.pop()
            return True

    def give(self, size: int) -> None:
        """Give reserved bytes back."""
        with self.lock:
            self.held -= size

    def segment(self, size: int) -> _Segment | None:
        """Segment for ``size`` bytes at least, if there is room."""
        with self.lock:
            spare = self._spare.pop() if size <= _SEGMENT_BYTES and self._spare else None
            if not self.take(max(size, _SEGMENT_BYTES)):
                return None
            return spare or _Segment(max(size, _SEGMENT_BYTES))

    def give_segment(self, segment: _Segment) -> None:
        """Give back a segment whose entries are read."""
        with self.lock:
            self.held -= len(segment.data)
            if len(segment.data) == _SEGMENT_BYTES and len(self._spare) < _SPARE_SEGMENTS:
                segment.end = 0
                self._spare.append(segment)

    def prepare(self, *, all_of_it: bool) -> None:
        """Keep segments at hand whose pages are there, made where nobody waits; all before a backlog."""
        while (all_of_it or len(self._spare) < _SPARE_SEGMENTS) and not self._over(_SEGMENT_BYTES):
            segment = _Segment(_SEGMENT_BYTES)
            for start in range(0, _SEGMENT_BYTES, 8 * _PAGE_BYTES):
                segment.data[start : start + 8 * _PAGE_BYTES : _PAGE_BYTES] = bytes(8)
                time.sleep(_YIELD_S)
            with self.lock:
                self._spare.append(segment)

    def _over(self, more: int = 0) -> bool:
        return self.held + len(self._spare) * _SEGMENT_BYTES + more > RING_BYTES


_memory = _Memory()


class UndeliveredError(Exception):
    """Queued records were not answered in time.

    Parameters
    ----------
    counts
        Where every call has gone so far.
    url
        Where it should go.
    reason
        What came instead of an answer.
    """

    def __init__(self, model: str, counts: "Counts", url: str, reason: str) -> None:
        super().__init__(
            f"{counts.queued} records and labels of model {model!r} are not delivered to {url}: {reason} "
            f"({counts.acknowledged} acknowledged, {counts.error} refused, {counts.shed} shed)"
        )
        self.counts = counts
        self.url = url
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of calls by outcome.

    ``offered`` is the sum of the others, at every instant.

    Parameters
    ----------
    offered
        Calls of `Client.capture` and `Client.label`, and exchanges that a middleware saw.
    sampled_out
        Left out by ``rate``.
    shed
        Dropped: no room in memory, a record or body over the limits, or the client was closed.
    error
        Could not be read (a value of unknown type), or refused by the server.
    acknowledged
        Durable in the server's journal.
    queued
        Waiting, or being sent.
    """

    offered: int
    sampled_out: int
    shed: int
    error: int
    acknowledged: int
    queued: int


class Client:
    """Sends copies of a model's traffic to Outrider.

    Parameters
    ----------
    url
        Of the service; default `find_server`, looked up again with every new connection.
    key
        Default `find_key`: ``OUTRIDER_KEY``, else the file ``OUTRIDER_KEY_FILE``, else ``key.ingest`` or
        ``key`` in the data folder.
    model
        Name of the model as in ``outrider.toml``.
    version
        Version of the model that answers; `capture` may override it.
    rate
        Share of the traffic that is kept, in (0, 1]. A hash of the entity, else of the id, decides: an entity
        is kept whole or not at all, the same in every process. What is kept has the weight 1 / rate.
    always_if
        Function of inputs and outputs; where it says True the record is kept whatever its hash, with weight
        1. Called only where ``rate`` is below 1; where it raises, that counts as False.

    Raises
    ------
    ValueError
        If ``rate`` is not in (0, 1].

    Examples
    --------
    >>> client = Client(model="churn", rate=0.1, always_if=lambda inputs, outputs: outputs["score"] < 0.6)
    >>> record_id = client.capture({"age": 41}, {"score": 0.55}, entity="u7")
    >>> client.close(timeout=0)
    >>> client.counts.offered
    1
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        model: str,
        version: str | None = None,
        rate: float = 1.0,
        always_if: Callable[[Any, Any], object] | None = None,
    ) -> None:
        if not 0.0 < rate <= 1.0:
            raise ValueError(
                f"rate must be above 0 and at most 1, got {rate}; 1 keeps every call, and what is never kept "
                "cannot be weighed either"
            )
        self._url = url
        self._server = _server_or_default()
        self.model = model
        self.version = version
        self._key = key
        self._rate = rate
        self._always_if = always_if if rate < 1.0 else None
        self._has_warned = False
        self._disabled = os.environ.get("OUTRIDER_DISABLED", "") not in ("", "0")
        self._reset()
        if not self._disabled:
            # Now, while the service starts: with the first request these would cost it 20 ms, and a process
            # forked while the sender imports one can never import it.
            for name in ("encodings.idna", "http.client", "tomllib", "zlib"):
                __import__(name)

            if rate < 1.0:
                from hashlib import blake2b

                self._hash = blake2b
            _clients.add(self)

    def capture(
        self,
        inputs: Fields,
        outputs: Fields | None,
        *,
        id: str | None = None,
        entity: str | None = None,
        attrs: Fields | None = None,
        version: str | None = None,
    ) -> str | None:
        """Copy one request and its answer, as values are now.

        Parameters
        ----------
        inputs, outputs
            By field name: numbers, text, booleans, None, lists, dictionaries, numpy arrays, torch tensors,
            bytes (an encoded image; ``{"$bytes": data, "media_type": "image/png"}`` says of what) and
            references (``{"$uri": …, "sha256": …}``). Bytes and long texts are kept by reference, arrays are
            copied once.
        id
            Made when None.
        entity
            User, camera, patient, conversation: the key of windows and consistency, and of sampling.
        attrs
            What is known beside the inputs, such as the device.
        version
            Version of the model that answered.

        Returns
        -------
        str or None
            Id of the record, to label it later; None when it was not kept. Never raises.
        """
        if self._disabled:
            return None
        try:
            id = self._prefix + format(next(self._numbers), "x") if id is None else str(id)
            weight = 1.0
            if self._rate < 1.0:
                weight = self._weight(id if entity is None else entity, inputs, outputs)
                if not weight:
                    self._count("sampled_out")
                    return None
            parts: list[Any] = []
            fields: Any = (
                "records", id, time.time(), _text(entity), version or self.version, weight,
                _frozen(inputs, parts), _frozen(outputs, parts), attrs and _frozen(attrs, parts),
            )  # fmt: skip
            return id if self._push(marshal.dumps(fields), parts) else None
        except Exception as error:  # noqa: BLE001 - never an exception into the caller
            self._fail(error)
            return None

    def label(self, id: str, label: Fields, *, source: str = "human", ts: float | None = None) -> bool:
        """Send the unsampled label of a record, early or late.

        Parameters
        ----------
        id
            Id of the record.
        label
            By field name, as the model's outputs are named.
        source
            Who says so.
        ts
            When it became known, seconds since the epoch; default now.

        Returns
        -------
        bool
            Whether it was queued. Never raises.
        """
        if self._disabled:
            return False
        try:
            parts: list[Any] = []
            at = time.time() if ts is None else ts
            fields = ("labels", str(id), at, source, self.new_id(), _frozen(label, parts))
            return self._push(marshal.dumps(fields), parts)
        except Exception as error:  # noqa: BLE001 - never an exception into the caller
            self._fail(error)
            return False

    @property
    def url(self) -> str:
        """Address of the service, as far as known; may be set."""
        return self._url or self._server.url

    @url.setter
    def url(self, url: str) -> None:
        self._url = url

    @property
    def counts(self) -> Counts:
        """Counts of calls by outcome so far."""
        with self._memory.lock:
            t = self._tally
            queued = len(self._ring) + self._in_hand
            return Counts(
                self._offered, t["sampled_out"], t["shed"], t["error"], t["acknowledged"], queued
            )  # fmt: skip

    @property
    def circuit(self) -> Circuit:
        """State of the circuit to the server.

        ``closed``: sending; ``open``: the server failed, no record is tried; ``half_open``: one is.
        """
        sender = self._sender
        return "closed" if sender is None else sender.circuit

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all queued records have been answered.

        Returns
        -------
        bool
            Always True.

        Raises
        ------
        UndeliveredError
            If ``timeout`` seconds were not enough; what is queued stays queued.
        """
        if not self._flush(timeout, is_patient=True):
            raise UndeliveredError(self.model, self.counts, self.url, self._trouble())
        return True

    def _flush(self, timeout: float, *, is_patient: bool) -> bool:
        """Flush; one who is not patient gives up as soon as the server has failed."""
        deadline = time.monotonic() + timeout
        with self._memory.lock:
            goal = self._settled + len(self._ring) + self._in_hand
        if self._sender is not None:
            self._sender.wake()
        while self._settled < goal:
            if self._sender is None or time.monotonic() >= deadline:
                return False
            if self.circuit != "closed" and not is_patient:
                return False
            time.sleep(0.002)
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Flush for at most ``timeout`` seconds and stop.

        The rest of the queue, and later calls, are shed.

        Never raises: how many were left is said on stderr.
        """
        with contextlib.suppress(Exception):
            self._flush(timeout, is_patient=True)
            self._say_left()
            self._stop(0.2)

    def new_id(self) -> str:
        """Id that no other record has: of this process, numbered."""
        return self._prefix + format(next(self._numbers), "x")

    # ---- inside ----------------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Empty state of this process; in a forked child too, where the parent keeps what is queued."""
        self._memory = _memory
        self._ring: deque[Entry] = deque()
        self._segment: _Segment | None = None
        self._in_hand = 0
        self._in_hand_bytes = 0
        self._offered = 0
        self._settled = 0
        self._tally = dict.fromkeys(("sampled_out", "shed", "error", "acknowledged"), 0)
        self._numbers = itertools.count()
        self._prefix = f"{time.time_ns() // 1_000_000:012x}-{os.urandom(5).hex()}-"
        self._closed = False
        self._fault: Exception | None = None
        self._sender: _Sender | None = None

    def _trouble(self) -> str:
        """Last error of the server in place of an acceptance."""
        sender = self._sender
        return (sender and sender.trouble) or "no answer yet"

    def _say_left(self) -> None:
        """Tell on stderr how many are not delivered; a logger may be gone at the end of a process."""
        left = self.counts.queued
        if left:
            sys.stderr.write(
                f"outrider: {left} records and labels of model {self.model!r} were not delivered to "
                f"{self.url}: {self._trouble()}\n"
            )

    def _stop(self, timeout: float) -> None:
        """Shed what is queued and end the thread, waiting a moment for it."""
        with self._memory.lock:
            self._closed = True
            while self._ring:
                entry = self._ring.popleft()
                self._in_hand += 1
                self._in_hand_bytes += _size(entry[3])
                self._release(entry)
                self._settle(_size(entry[3]), shed=1)
            segment, self._segment = self._segment, None
            if segment is not None and not segment.unread:
                self._memory.give_segment(segment)
        if self._sender is not None:
            self._sender.stop(timeout)

    def _weight(self, key: object, inputs: Any, outputs: Any) -> float:
        """1 / probability with which this record is kept, 0.0 when it is not."""
        return 1.0 if self._is_wanted(inputs, outputs) else self._chosen(key)

    def _is_wanted(self, inputs: Any, outputs: Any) -> bool:
        if self._always_if is None:
            return False
        try:
            return bool(self._always_if(inputs, outputs))
        except Exception:
            if not self._has_warned:
                self._has_warned = True
                log.warning("always_if for %s failed; that counts as False", self.model, exc_info=True)
            return False

    def _chosen(self, key: object) -> float:
        digest = self._hash(str(key).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return 1.0 / self._rate if int.from_bytes(digest, "big") < self._rate * 2**64 else 0.0

    def _push(self, entry: bytes, parts: Sequence[Any] = (), *, reserved: int = 0) -> bool:
        """Queue an entry; ``reserved`` bytes of it are held already."""
        memory, size = self._memory, len(entry)
        more = _size(parts) if parts else 0
        with memory.lock:
            self._offered += 1
            segment = None
            if not (
                self._closed
                or size > _MAX_PLAIN_BYTES
                or more > MAX_RECORD_BYTES
                or memory.held + more - reserved > RING_BYTES
            ):
                segment = self._segment
                if segment is None or segment.end + size > _SEGMENT_BYTES:
                    segment = self._next_segment(size)
            if segment is None:
                self._tally["shed"] += 1
                memory.held -= reserved
                return False
            start = segment.end
            segment.end = start + size
            segment.unread += 1
            segment.data[start : start + size] = entry
            self._ring.append((segment, start, size, parts))
            memory.held += more - reserved
        if self._sender is None:
            self._start()
        return True

    def _next_segment(self, size: int) -> _Segment | None:
        """Segment with room for an entry; one of its own for an entry that is larger than segments are."""
        segment = self._memory.segment(size)
        if segment is not None and size <= _SEGMENT_BYTES:
            last, self._segment = self._segment, segment
            if last is not None and not last.unread:
                self._memory.give_segment(last)
        return segment

    def _release(self, entry: Entry) -> None:
        """Let the place of an entry be written again: it was read."""
        with self._memory.lock:
            segment = entry[0]
            segment.unread -= 1
            if segment.unread == 0:
                if segment is self._segment:
                    segment.end = 0
                else:
                    self._memory.give_segment(segment)

    def _start(self) -> None:
        with self._memory.lock:
            if self._sender is not None or self._closed:
                return
            sender = self._sender = _Sender(self)
        try:
            sender.start()
        except RuntimeError:  # no thread can be started now, as while the interpreter ends: with a later call
            self._sender = None

    def _count(self, name: Literal["sampled_out", "shed", "error"]) -> None:
        with self._memory.lock:
            self._offered += 1
            self._tally[name] += 1

    def _fail(self, error: Exception) -> None:
        """Count a call that could not be read; the sender says so, for logging may wait for a disk."""
        self._count("error")
        self._fault = error
        if self._sender is None:
            self._start()

    def _take(self) -> list[Entry]:
        """Entries for the sender, oldest first; until settled they count as queued."""
        taken: list[Entry] = []
        size = 0
        with self._memory.lock:
            while self._ring and len(taken) < _BLOCK_ENTRIES and size < _BLOCK_BYTES:
                entry = self._ring.popleft()
                taken.append(entry)
                parts = _size(entry[3])
                size += entry[2] + parts
                self._in_hand_bytes += parts
            self._in_hand += len(taken)
        return taken

    def _hold(self, size: int) -> None:
        """Count what was made of entries in hand."""
        with self._memory.lock:
            self._memory.held += size
            self._in_hand_bytes += size

    def _settle(
        self, size: int, *, sampled_out: int = 0, shed: int = 0, error: int = 0, acknowledged: int = 0
    ) -> None:
        """Record what became of taken entries of ``size`` bytes together."""
        number = sampled_out + shed + error + acknowledged
        with self._memory.lock:
            self._memory.held -= size
            self._in_hand -= number
            self._in_hand_bytes -= size
            self._tally["sampled_out"] += sampled_out
            self._tally["shed"] += shed
            self._tally["error"] += error
            self._tally["acknowledged"] += acknowledged
            self._settled += number

    def _abandon(self, *, is_error: bool) -> None:
        """Count what is in hand as errors, or as shed."""
        with self._memory.lock:
            number = self._in_hand
            self._settle(self._in_hand_bytes, error=number if is_error else 0, shed=0 if is_error else number)


def watch(
    *,
    model: str,
    version: str | None = None,
    client: Client | None = None,
    id: str | None = None,
    entity: str | None = None,
    attrs: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a predict function, each call captured after return.

    Parameters
    ----------
    model, version
        What answers.
    client
        Default: one made from the environment. Give one for ``rate`` and ``always_if``.
    id, entity
        Names of arguments that carry them; they are not inputs then.
    attrs
        Names of arguments that are attributes rather than inputs.

    Returns
    -------
    callable
        The function, sync or async, unchanged to its callers. Arguments become inputs by name; a result
        that is a dictionary becomes the outputs, anything else the output ``value``.

    Raises
    ------
    TypeError
        If what is decorated is not a plain function that returns its answer.

    Examples
    --------
    >>> @watch(model="churn", client=Client(model="churn"))
    ... def predict(age):
    ...     return {"score": 0.9}
    >>> predict(41)
    {'score': 0.9}
    """
    used = client if client is not None else Client(model=model, version=version)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call = _Arguments(function, used, id, entity, frozenset(attrs), version)

        if call.is_coroutine:

            @functools.wraps(function)
            async def watched_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                copied = call.copy(args, kwargs)
                result = await cast("Callable[P, Awaitable[Any]]", function)(*args, **kwargs)
                call.capture(copied, result)
                return result

            return cast("Callable[P, R]", watched_async)

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            copied = call.copy(args, kwargs)
            result = function(*args, **kwargs)
            call.capture(copied, result)
            return result

        return watched

    return decorate


class _Arguments:
    """Copies the arguments of a watched function before it runs, for it may change them."""

    def __init__(
        self,
        function: Callable[..., Any],
        client: Client,
        id: str | None,
        entity: str | None,
        attrs: frozenset[str],
        version: str | None,
    ) -> None:
        code = getattr(function, "__code__", None)
        flags = 0 if code is None else code.co_flags  # inspect costs 10 ms to import
        if code is None or flags & 0x220:  # CO_GENERATOR, CO_ASYNC_GENERATOR
            what = type(function).__name__ if code is None else "function that yields"
            raise TypeError(
                f"watch needs a plain function that returns its answer, got a {what}; call Client.capture "
                "where the answer is complete"
            )
        self.is_coroutine = bool(flags & 0x80)
        self._names = code.co_varnames[: code.co_argcount]
        positional = getattr(function, "__defaults__", None) or ()
        self._defaults = dict(zip(self._names[len(self._names) - len(positional) :], positional, strict=True))
        self._defaults |= getattr(function, "__kwdefaults__", None) or {}
        self._client, self._id, self._entity, self._attrs = client, id, entity, attrs
        self._version = version

    def copy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, list[Any]] | None:
        if self._client._disabled:
            return None
        try:
            values = self._defaults | dict(zip(self._names, args, strict=False)) | kwargs
            values.pop("self", None)
            parts: list[Any] = []
            return marshal.dumps(_frozen(values, parts)), parts
        except Exception as error:  # noqa: BLE001 - never an exception into the caller
            self._client._fail(error)
            return None

    def capture(self, copied: tuple[bytes, list[Any]] | None, result: Any) -> None:
        if copied is None:
            return
        client = self._client
        try:
            values, parts = marshal.loads(copied[0]), copied[1]
            id, entity = (_text(values.pop(name, None)) for name in (self._id, self._entity))
            attrs = {name: values.pop(name) for name in self._attrs if name in values} or None
            outputs = result if isinstance(result, Mapping) else {"value": result}
            id = id or client.new_id()
            weight = 1.0
            if client._rate < 1.0:
                inputs = _restored(values, parts) if client._always_if and parts else values
                weight = client._weight(id if entity is None else entity, inputs, outputs)
                if not weight:
                    client._count("sampled_out")
                    return
            fields = (
                "records", id, time.time(), entity, self._version or client.version, weight,
                values, _frozen(outputs, parts), attrs,
            )  # fmt: skip
            client._push(marshal.dumps(fields), parts)
        except Exception as error:  # noqa: BLE001 - never an exception into the caller
            client._fail(error)


# ---- middleware --------------------------------------------------------------------------------------------


class OutriderMiddleware:
    """ASGI middleware that captures requests and responses.

    Of some paths, as inputs and outputs.

    The service may read and set ``scope["outrider"]``, a dictionary: ``id`` (to answer with, so that a label
    can name it later), ``entity`` and ``attrs``.

    Parameters
    ----------
    app
        The service.
    paths
        Exact paths that are captured, successful POST requests only. A JSON object gives a field for each
        member, other JSON the field ``value``, text and anything else the field ``body``.
    client
        Where to; ``always_if`` is asked in its sending thread.
    max_bytes
        Exchanges with a larger body are shed.
    id_header, entity_header
        Request headers with the record's id and entity.
    """

    def __init__(
        self,
        app: App,
        *,
        paths: Iterable[str],
        client: Client,
        max_bytes: int = 1_000_000,
        id_header: str = "x-request-id",
        entity_header: str | None = None,
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._client = client
        self._max_bytes = max_bytes
        self._id_header = id_header.lower().encode()
        self._entity_header = (entity_header or "").lower().encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve the request unchanged; copy exchanges of captured paths."""
        if (
            scope["type"] != "http"
            or scope["method"] != "POST"
            or scope["path"] not in self._paths
            or self._client._disabled
        ):
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope.get("headers", ()))
        exchange = _Exchange(
            self._client,
            self._max_bytes,
            headers.get(self._id_header, b"").decode("latin-1"),
            headers.get(self._entity_header, b"").decode("latin-1"),
        )
        exchange.sides[0].describe(headers.get(b"content-type", b""), headers.get(b"content-encoding", b""))
        scope["outrider"] = exchange.about

        async def copy_request() -> Message:
            message = await receive()
            exchange.sides[0].see(message.get("body", b""))
            return message

        async def copy_response(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                seen = {bytes(name).lower(): bytes(value) for name, value in message.get("headers", ())}
                exchange.sides[1].describe(seen.get(b"content-type", b""), seen.get(b"content-encoding", b""))
            else:
                exchange.sides[1].see(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, copy_request, copy_response)
            exchange.capture()
        finally:
            exchange.release()


class OutriderWsgiMiddleware:
    """WSGI middleware: as `OutriderMiddleware`, for Flask or Django; ``environ["outrider.about"]``.

    Parameters
    ----------
    app
        The service.
    paths, client, max_bytes, id_header, entity_header
        As for `OutriderMiddleware`.
    """

    def __init__(
        self,
        app: WsgiApp,
        *,
        paths: Iterable[str],
        client: Client,
        max_bytes: int = 1_000_000,
        id_header: str = "x-request-id",
        entity_header: str | None = None,
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._client = client
        self._max_bytes = max_bytes
        self._id_name = _environ_name(id_header)
        self._entity_name = _environ_name(entity_header or "")

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve the request unchanged; copy exchanges of captured paths."""
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        if environ.get("REQUEST_METHOD") != "POST" or path not in self._paths or self._client._disabled:
            return self._app(environ, start_response)
        exchange = _Exchange(
            self._client,
            self._max_bytes,
            environ.get(self._id_name, ""),
            environ.get(self._entity_name, ""),
        )
        request, response = exchange.sides
        request.describe(environ.get("CONTENT_TYPE", ""), environ.get("HTTP_CONTENT_ENCODING", ""))
        environ["outrider.about"] = exchange.about
        environ["wsgi.input"] = _Input(environ["wsgi.input"], request.see)

        def copy_start(status: str, headers: list[tuple[str, str]], *failure: Any) -> Callable[[bytes], Any]:
            write = start_response(status, headers, *failure)
            exchange.status = int(status[:3]) if status[:3].isdigit() else 0
            seen = {name.lower(): value for name, value in headers}
            response.describe(seen.get("content-type", ""), seen.get("content-encoding", ""))

            def copy_write(chunk: bytes) -> Any:
                response.see(chunk)
                return write(chunk)

            return copy_write

        try:
            chunks = self._app(environ, copy_start)
        except BaseException:
            exchange.release()
            raise
        output = _Output(chunks, exchange)
        # A list goes on as it is: servers take the length of the response from it.
        return list(output) if type(chunks) is list else output


class _Exchange:
    """Request and response as a middleware sees them go by; bodies are kept by reference."""

    def __init__(self, client: Client, max_bytes: int, id: str, entity: str) -> None:
        self.about: dict[str, Any] = {"id": id or client.new_id(), "entity": entity or None, "attrs": None}
        self.status = 0
        self.reserved = 0
        self.is_whole = True
        self.max_bytes = max_bytes
        self.client = client
        self.memory = client._memory
        self.sides = (_Side(self), _Side(self))

    def capture(self) -> None:
        """Queue it, if the service answered with success."""
        if not 200 <= self.status < 300:
            return
        client, about = self.client, self.about
        try:
            if not self.is_whole:
                client._count("shed")
                return
            id, entity = _text(about.get("id")) or client.new_id(), _text(about.get("entity"))
            weight = client._chosen(id if entity is None else entity) if client._rate < 1.0 else 1.0
            if not weight and client._always_if is None:
                client._count("sampled_out")
                return
            # With always_if a weight of 0.0 is not the last word: the sender reads the bodies and asks it.
            attrs: list[Any] = []
            request, response = self.sides
            fields = (
                "bodies", id, time.time(), entity, client.version, weight, request.about, response.about,
                len(request.chunks), _frozen(about.get("attrs"), attrs),
            )  # fmt: skip
            if attrs:
                raise TypeError("attrs of an exchange are plain values")
            entry, parts = marshal.dumps(fields), (*request.chunks, *response.chunks)
            reserved, self.reserved = self.reserved, 0
            if self.memory is not client._memory:  # this process was forked meanwhile
                reserved = 0
            client._push(entry, parts, reserved=reserved)
        except Exception as error:  # noqa: BLE001 - never an exception into the caller
            client._fail(error)

    def release(self) -> None:
        """Give back what was reserved, unless it was queued."""
        reserved, self.reserved = self.reserved, 0
        if reserved:
            self.memory.give(reserved)


class _Side:
    """Body of a request or response."""

    def __init__(self, exchange: _Exchange) -> None:
        self.about = ("", "")
        self.chunks: list[bytes] = []
        self._exchange = exchange
        self._size = 0

    def describe(self, media_type: str | bytes, encoding: str | bytes) -> None:
        """Remember headers Content-Type and Content-Encoding."""
        self.about = tuple(  # type: ignore[assignment]  # two of two
            text.decode("latin-1") if isinstance(text, bytes) else str(text)
            for text in (media_type, encoding)
        )

    def see(self, chunk: Any) -> None:
        """Keep a piece, if there is room; never raises."""
        exchange = self._exchange
        if not chunk or not exchange.is_whole:
            return
        try:
            chunk = bytes(chunk)  # the same object, if it is bytes already
            self._size += len(chunk)
            size = sys.getsizeof(chunk)
            if self._size <= exchange.max_bytes and exchange.memory.take(size):
                exchange.reserved += size
                self.chunks.append(chunk)
                return
        except Exception:  # noqa: BLE001 - never an exception into the caller
            pass
        exchange.is_whole = False
        for side in exchange.sides:
            side.chunks.clear()
        exchange.release()


class _Input:
    """``wsgi.input`` that tells what was read from it."""

    def __init__(self, stream: Any, see: Callable[[bytes], None]) -> None:
        self._stream = stream
        self._see = see

    def read(self, *size: int) -> bytes:
        return self._told(self._stream.read(*size))

    def readline(self, *size: int) -> bytes:
        return self._told(self._stream.readline(*size))

    def readlines(self, *hint: int) -> list[bytes]:
        return [self._told(line) for line in self._stream.readlines(*hint)]

    def __iter__(self) -> Iterator[bytes]:
        return map(self._told, self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _told(self, chunk: bytes) -> bytes:
        self._see(chunk)
        return chunk


class _Output:
    """Response of a WSGI service that tells what was taken from it, and when it was all."""

    def __init__(self, chunks: Iterable[bytes], exchange: _Exchange) -> None:
        self._chunks = chunks
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._chunks:
                self._exchange.sides[1].see(chunk)
                yield chunk
            self._exchange.capture()
        finally:
            self._exchange.release()

    def close(self) -> None:
        self._exchange.release()
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()


def _environ_name(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


# ---- snapshots ---------------------------------------------------------------------------------------------


def _frozen(value: Any, parts: list[Any]) -> Any:
    """Value that marshal can copy exactly; what is large goes to ``parts``, a tuple stands in its place."""
    kind = type(value)
    if kind is dict:
        for inner in value.values():
            inner_kind = type(inner)
            if inner_kind is float or inner_kind is int:
                continue
            if inner_kind is str:
                if len(inner) > _LONG_TEXT:
                    return _frozen_fields(value, parts)
            elif inner_kind not in _PLAIN:
                return _frozen_fields(value, parts)
        return value
    if kind in _PLAIN:
        return value
    return _frozen_other(value, parts)


def _frozen_fields(value: Fields, parts: list[Any]) -> Any:
    if type(value.get("$bytes")) in (bytes, bytearray, memoryview):
        parts.append(bytes(value["$bytes"]))
        return ("bytes", len(parts) - 1, _text(value.get("media_type")))
    frozen = {}
    for name, inner in value.items():
        kind = type(inner)
        if kind is str and len(inner) > _LONG_TEXT:
            parts.append(inner)
            inner = ("text", len(parts) - 1)
        elif kind is bytes or kind is bytearray or kind is memoryview:
            parts.append(bytes(inner))  # the same object, if it is bytes already
            inner = ("bytes", len(parts) - 1, None)
        elif kind not in _PLAIN:
            inner = _frozen(inner, parts)
        frozen[str(name)] = inner
    return frozen


def _frozen_other(value: Any, parts: list[Any]) -> Any:
    if isinstance(value, list | tuple):
        return (
            list(value) if _PLAIN.issuperset(map(type, value)) else [_frozen(inner, parts) for inner in value]
        )
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return _frozen_array(value, parts)
    if isinstance(value, Mapping):
        return _frozen_fields(value, parts)
    return _frozen_scalar(value, parts)


def _frozen_scalar(value: Any, parts: list[Any]) -> Any:
    for kind in (int, float):
        if isinstance(value, kind):  # an enum, or another subclass of a plain type
            return kind(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes stand in a list; give them a field of their own")
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return _frozen(value.model_dump(mode="json"), parts)
    raise TypeError(f"a {type(value).__name__} cannot be captured")


def _frozen_array(array: Any, parts: list[Any]) -> Any:
    if array.dtype == "float16":
        array = array.astype("float32")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or not array.dtype.isnative:
        return _frozen(array.tolist(), parts)
    if not array.shape:
        return array.item()
    parts.append(array.tobytes())
    return ("array", len(parts) - 1, array.dtype.char, array.dtype.name, tuple(array.shape))


def _thawed(value: Any, parts: Sequence[Any], placed: Callable[[Any], int] | None) -> Any:
    """Plain JSON values; numbers that are not finite become null, large values what ``placed`` numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _thawed(inner, parts, placed) for name, inner in value.items()}
    if isinstance(value, list):
        return [_thawed(inner, parts, None) for inner in value]
    if not isinstance(value, tuple):
        return value
    part = parts[value[1]]
    if value[0] == "text":
        return part if placed is None else {"$part": placed(part), "text": True}
    if value[0] == "bytes":
        if placed is None:
            raise TypeError("bytes do not stand in lists of objects or in labels")
        return {"$part": placed(part)} | ({} if value[2] is None else {"media_type": value[2]})
    _, _, code, name, shape = value
    if placed is not None and len(part) > _INLINE_BYTES and sys.byteorder == "little":
        return {"$part": placed(part), "dtype": name, "shape": shape}
    if 0 in shape:
        return []
    return _thawed(memoryview(part).cast("B").cast(code, shape).tolist(), (), None)


def _restored(value: Any, parts: Sequence[Any]) -> Any:
    """Values for ``always_if`` of a watched function: large ones as they were, arrays as lists."""
    if isinstance(value, dict):
        return {name: _restored(inner, parts) for name, inner in value.items()}
    if isinstance(value, tuple):
        return _thawed(value, parts, None) if value[0] == "array" else parts[value[1]]
    return value


def _size(parts: Sequence[Any]) -> int:
    return sum(map(sys.getsizeof, parts))


def _text(value: Any) -> str | None:
    return value if value is None or type(value) is str else str(value)


# ---- the sending thread ------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """A record or label as JSON, the numbers of its parts in the block, and the bytes that it holds."""

    json: bytes
    parts: range
    held: int


class _Block:
    """Entries of one route, encoded: JSON lines, and the large values that stand behind them."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.parts: list[bytes] = []

    def place(self, part: Any) -> int:
        """Add a large value; its number."""
        self.parts.append(part if isinstance(part, bytes) else part.encode("utf-8", "replace"))
        return len(self.parts) - 1

    def body(self, lines: Sequence[_Line]) -> tuple[str, list[bytes]]:
        """Media type and pieces of a request with some of the lines."""
        texts = [line.json for line in lines]
        used = {number for line in lines for number in line.parts}
        if not used:
            return "application/x-ndjson", _pieces(texts, b"\n")
        # What other lines name keeps its number, with no bytes.
        parts = [part if number in used else b"" for number, part in enumerate(self.parts)]
        sizes = json.dumps([len(part) for part in parts]).encode()
        texts = [b'{"sizes":' + sizes + b',"records":[', *_pieces(texts, b","), b"]}"]
        length = sum(map(len, texts)).to_bytes(8, "little")
        return "application/vnd.outrider.framed", [length, *texts, *filter(None, parts)]


def _pieces(texts: Sequence[bytes], between: bytes) -> list[bytes]:
    """Texts joined, but for large ones: a copy of those would cost memory."""
    pieces: list[bytes] = []
    small: list[bytes] = []
    for number, text in enumerate(texts):
        if number:
            small.append(between)
        if len(text) < _PIECE_BYTES:
            small.append(text)
        else:
            pieces += (b"".join(small), text)
            small = []
    return [*pieces, b"".join(small)]


class _Sender:
    """Sends until stopped; keeps a block until it is answered, and leaves a server alone that fails.

    After a failure the circuit is open for a pause that doubles each time; then one record probes the server
    (half open), and the rest follows when that is answered (closed).
    """

    def __init__(self, client: Client) -> None:
        self.circuit: Circuit = "closed"
        self._client = client
        self._wake = threading.Event()
        self._stopping = False
        self._connection: Any = None
        self._failures = 0
        self._said: set[tuple[str, int]] = set()
        """Addresses and statuses that were logged since something was taken."""
        self.trouble = ""
        self._quiet_until = 0.0
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread, as a daemon; `threading.Thread.start` would wait until it runs."""
        _thread.start_new_thread(self._run, ())

    def wake(self) -> None:
        """Look for entries, and try a server that failed, now rather than in a moment."""
        self._wake.set()

    def stop(self, timeout: float) -> None:
        """End the thread soon, waiting a moment for it; it sheds what it has in hand by then."""
        self._stopping = True
        self._wake.set()
        self._ended.wait(timeout)

    def _run(self) -> None:
        threading.current_thread().name = "outrider-client"
        while not self._stopping:
            self._client._memory.prepare(all_of_it=False)
            fault, self._client._fault = self._client._fault, None
            if fault is not None:
                self._report([{"field": "the call", "reason": f"{type(fault).__name__}: {fault}"}])
            taken = self._client._take()
            if not taken:
                self._wake.wait(_IDLE_S)
                self._wake.clear()
                continue
            try:
                blocks = self._encoded(taken)
                for route, block in blocks.items():
                    self._deliver(route, block, block.lines)
            except Exception:  # the border of the block: one that breaks us stays alone
                log.exception("captured records could not be sent")
                for entry in taken:
                    self._client._release(entry)
                self._client._abandon(is_error=True)
        self._client._abandon(is_error=False)
        self._disconnect()
        self._ended.set()

    def _encoded(self, taken: list[Entry]) -> dict[Route, _Block]:
        """Blocks by route; entries that cannot be encoded are settled as errors."""
        blocks: dict[Route, _Block] = {"records": _Block(), "labels": _Block()}
        began, more = time.perf_counter(), 0
        taken.reverse()
        while taken:
            segment, start, size, parts = entry = taken[-1]
            fields = marshal.loads(memoryview(segment.data)[start : start + size])
            taken.pop()
            self._client._release(entry)
            held = _size(parts)
            block = blocks["labels" if fields[0] == "labels" else "records"]
            first = len(block.parts)
            try:
                text = _encode(self._client, fields, parts, block.place)
            except (ValueError, TypeError, RecursionError, OSError) as error:
                del block.parts[first:]
                self._report([{"field": "the call", "reason": f"{type(error).__name__}: {error}"}])
                self._client._settle(held, error=1)
                continue
            if text is None:
                del block.parts[first:]
                self._client._settle(held, sampled_out=1)
            else:
                more += len(text)
                block.lines.append(_Line(text, range(first, len(block.parts)), held + len(text)))
            # A thread of the service that waits for the interpreter gets it only when this one really sleeps.
            if time.perf_counter() - began > _SLICE_S:
                time.sleep(_YIELD_S)
                began = time.perf_counter()
        self._client._hold(more)
        return blocks

    def _deliver(self, route: Route, block: _Block, lines: Sequence[_Line]) -> None:
        """Repeat until these lines are answered for good, or the client stops."""
        while lines and not self._stopping:
            if self.circuit == "half_open":
                answered = self._attempt(route, block, lines[:1])
                lines = lines[1:] if answered else lines
            elif self._attempt(route, block, lines):
                return

    def _attempt(self, route: Route, block: _Block, lines: Sequence[_Line]) -> bool:
        """True where these lines are settled now; otherwise the circuit has opened and the pause is over."""
        status, answer = self._post(f"/v1/{route}", *block.body(lines))
        is_taken = status == 202 and isinstance(answer.get("accepted"), int)
        if not (is_taken or (400 <= status < 500 and status not in _LATER)):
            self._back_off(status, answer)
            return False
        self.circuit, self._failures, self.trouble = "closed", 0, ""
        self._said.clear()
        if status == 413 and len(lines) > 1:
            middle = len(lines) // 2
            self._deliver(route, block, lines[:middle])
            self._deliver(route, block, lines[middle:])
            return True
        accepted = min(len(lines), answer["accepted"]) if is_taken else 0
        if accepted < len(lines):
            self._report(answer.get("rejected") or [{"field": "the body", "reason": answer["detail"]}])
        held = sum(line.held for line in lines)
        self._client._settle(held, acknowledged=accepted, error=len(lines) - accepted)
        return True

    def _report(self, rejected: Sequence[Mapping[str, Any]]) -> None:
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            field, reason = rejected[0].get("field"), rejected[0].get("reason")
            log.warning(
                "outrider did not take a record (of %d refused): %s: %s", len(rejected), field, reason
            )

    def _back_off(self, status: int, answer: Mapping[str, Any]) -> None:
        self.trouble = answer["detail"]
        said = (self._client.url, status)
        if said not in self._said:
            self._said.add(said)
            log.warning("outrider cannot deliver: %s; it is kept and sent later", self.trouble)
        self._failures += 1
        self.circuit = "open"
        pause = min(0.1 * 2 ** min(self._failures, 10), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)
        if not self._stopping:
            self._client._memory.prepare(all_of_it=True)
            self._wake.clear()
            self._wake.wait(max(pause, min(answer.get("retry_after_s", 0.0), _LONGEST_RETRY_AFTER_S)))
        self.circuit = "half_open"

    def _post(self, path: str, media_type: str, pieces: list[bytes]) -> tuple[int, dict[str, Any]]:
        """Status and JSON of the answer; status 0 when there was none in time."""
        import http.client  # here, because it costs importers of the client 20 ms
        from urllib.parse import urlsplit

        client, deadline = self._client, time.monotonic() + _TIMEOUT_S
        is_kept = self._connection is not None
        if not is_kept:
            client._server = _server_or_default()
        origin = "" if client._url else f" ({client._server.origin})"
        tried = f"POST {client.url.rstrip('/')}{path}{origin}"
        try:
            parts = urlsplit(client.url)
            headers = {
                "Authorization": f"Bearer {find_key(client._key, client._server.folder, sends=True)}",
                "Content-Type": media_type,
                "Content-Length": str(sum(map(len, pieces))),
            }
            if self._connection is None:
                if parts.scheme not in ("http", "https") or not parts.hostname:
                    return 0, {"detail": f"{tried}: http:// or https:// expected; is the service running?"}
                secure = parts.scheme == "https"
                kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
                self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)
                self._connection.connect()
                self._connection.sock = _TimedSocket(self._connection.sock)
            self._connection.sock.deadline = deadline
            self._connection.request("POST", parts.path.rstrip("/") + path, iter(pieces), headers)
            response = self._connection.getresponse()
            text = response.read(_ANSWER_BYTES)
            if response.will_close or not response.isclosed():
                self._disconnect()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._disconnect()
            if is_kept and isinstance(error, ConnectionError):  # closed by the server while it was idle
                return self._post(path, media_type, pieces)
            return 0, {"detail": f"{tried}: {type(error).__name__}: {error}"}
        try:
            members = json.loads(text)
        except ValueError:
            members = None
        if not isinstance(members, dict):
            members = {}
        said = members.get("detail", response.reason)
        members["detail"] = f"{tried} was answered with {response.status} {said}"
        with contextlib.suppress(ValueError):
            members["retry_after_s"] = max(0.0, float(response.headers.get("retry-after") or 0.0))
        return response.status, members

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _TimedSocket:
    """Socket for `http.client`, with one deadline for all of a request and its answer.

    A time limit for each operation alone would let a server of one byte a second hold the thread for hours.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.deadline = 0.0

    def sendall(self, data: Any) -> None:
        self.limit()
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self, self._socket.makefile(mode, buffering=0)))

    def close(self) -> None:
        self._socket.close()

    def limit(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {_TIMEOUT_S:g} s")
        self._socket.settimeout(left)


class _TimedReader(io.RawIOBase):
    def __init__(self, socket: _TimedSocket, raw: Any) -> None:
        self._timed = socket
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._timed.limit()
        return cast("int | None", self._raw.readinto(buffer))

    def close(self) -> None:
        self._raw.close()
        super().close()


# ---- where the service is ----------------------------------------------------------------------------------


class Server(NamedTuple):
    """Service as found.

    Parameters
    ----------
    url
        Its address; ``""`` where its port is not known before it runs.
    origin
        What says so.
    folder
        Data folder that belongs to the configuration here: the key lies in it.
    is_guess
        Whether nothing says so: there is no configuration, and nobody runs on the folder.
    """

    url: str
    origin: str
    folder: str
    is_guess: bool = False


def find_server(config: str | os.PathLike[str] | None = None) -> Server:
    """Address of the service, from configuration and environment.

    As commands, notebooks and the client find one.

    First of: ``OUTRIDER_URL``; what a service that runs on the data folder wrote there; ``server.host`` and
    ``server.port`` of the configuration; ``http://127.0.0.1:8470``.

    Parameters
    ----------
    config
        Configuration; default ``OUTRIDER_CONFIG``, else ``outrider.toml`` here, if there is one.

    Raises
    ------
    OSError
        If a configuration that was named cannot be read.
    ValueError
        If the configuration is no TOML.
    """
    named = os.fspath(config) if config else os.environ.get("OUTRIDER_CONFIG")
    path = named or "outrider.toml"
    url = os.environ.get("OUTRIDER_URL")
    try:
        settings, origin, is_guess = _settings(path), f"server.port of {path}", False
    except FileNotFoundError:
        if named and not url:
            raise
        settings, origin, is_guess = {}, f"the default: there is no {path}", True
    folder = os.path.join(os.path.dirname(path), _setting(settings, "storage", "folder", "outrider-data"))
    folder = os.path.realpath(folder)
    if url:
        return Server(url.rstrip("/"), "OUTRIDER_URL", folder)
    address = os.path.join(folder, "run", "server.json")
    try:
        with open(address, encoding="utf-8") as file:
            return Server(str(json.load(file)["url"]), address, folder)
    except (OSError, ValueError, KeyError, TypeError):  # none runs on it
        host = _setting(settings, "server", "host", "127.0.0.1")
        port = _setting(settings, "server", "port", "8470")
    shown = "127.0.0.1" if host in ("", "0.0.0.0") else host
    return Server("" if port == "0" else f"http://{shown}:{port}", origin, folder, is_guess)


def find_key(given: str | None, folder: str | os.PathLike[str], *, sends: bool = False) -> str:
    """Key from the first source that has one.

    Given, ``OUTRIDER_KEY``, the file ``OUTRIDER_KEY_FILE``, the key in a data folder, ``""``.

    Parameters
    ----------
    sends
        Whether it is for records and labels alone: then the folder's ``key.ingest`` goes first, which may do
        no more than that.

    Raises
    ------
    OSError
        If a file that is there, or that was named, cannot be read.
    ValueError
        If it is no text.
    """
    key = given or os.environ.get("OUTRIDER_KEY")
    if key:
        return key
    named = os.environ.get("OUTRIDER_KEY_FILE")
    names = ("key.ingest", "key") if sends else ("key",)
    for path in [named] if named else [os.path.join(folder, name) for name in names]:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            if named:
                raise
    return ""


def _server_or_default() -> Server:
    """The service, where a configuration that cannot be read is no reason to fail."""
    try:
        return find_server()
    except (OSError, ValueError) as error:
        url = os.environ.get("OUTRIDER_URL")
        return Server(url or DEFAULT_URL, "OUTRIDER_URL" if url else f"the default: {error}", "outrider-data")


def _settings(path: str) -> dict[str, Any]:
    import tomllib

    with open(path, encoding="utf-8-sig") as file:  # editors write a byte order mark in front
        return tomllib.loads(file.read())


def _setting(settings: Mapping[str, Any], section: str, name: str, default: str) -> str:
    """A setting as the service takes it: the environment goes before the file."""
    given = os.environ.get(f"OUTRIDER_{section}__{name}".upper())
    table = settings.get(section)
    return given or str(table.get(name, default) if isinstance(table, dict) else default)


# ---- encoding ----------------------------------------------------------------------------------------------


def _encode(
    client: Client, fields: tuple[Any, ...], parts: Sequence[Any], place: Callable[[Any], int]
) -> bytes | None:
    """JSON of a ring entry; None when ``always_if`` did not want a body whose hash was not chosen."""
    if fields[0] == "bodies":
        return _encode_bodies(client, fields, parts, place)
    if fields[0] == "labels":
        _, id_, ts, source, key, label = fields
        record = {
            "model": client.model,
            "id": id_,
            "ts": _time(ts),
            "source": source,
            "key": key,
            "label": label,
        }
    else:
        _, id_, ts, entity, version, weight, inputs, outputs, attrs = fields
        record = _head(client.model, id_, ts, entity, version, weight)
        record["inputs"] = inputs
        if outputs is not None:
            record["outputs"] = outputs
        if attrs is not None:
            record["attrs"] = attrs
    if not parts:
        with contextlib.suppress(ValueError):  # a number that is not finite
            return _dumps(record)
    return _dumps(_thawed(record, parts, None if fields[0] == "labels" else place))


def _encode_bodies(
    client: Client, fields: tuple[Any, ...], parts: Sequence[Any], place: Callable[[Any], int]
) -> bytes | None:
    _, id_, ts, entity, version, weight, asked, answered, split, attrs = fields
    sides = []
    for about, chunks in ((asked, parts[:split]), (answered, parts[split:])):
        sides.append(_read_body(b"".join(chunks), *about))
    if client._always_if is not None and client._is_wanted(*(values for values, _ in sides)):
        weight = 1.0
    if not weight:
        return None
    record = _head(client.model, id_, ts, entity, version, weight)
    if attrs is not None:
        record["attrs"] = _thawed(attrs, (), None)
    text = _dumps(record)[:-1]
    for name, (values, raw) in zip(("inputs", "outputs"), sides, strict=True):
        if values is not None:
            text += f',"{name}":'.encode() + (raw or _dumps(_thawed(_placed(values, place), (), None)))
    return text + b"}"


def _head(
    model: str, id_: str, ts: float, entity: str | None, version: str | None, weight: float
) -> dict[str, Any]:
    head: dict[str, Any] = {"model": model, "id": id_, "ts": _time(ts)}
    if entity is not None:
        head["entity"] = entity
    if version is not None:
        head["version"] = version
    if weight != 1.0:
        head["weight"] = weight
    return head


def _read_body(body: bytes, media_type: str, encoding: str) -> tuple[Any, bytes | None]:
    """Fields of a body, and its JSON where that can be sent as it is."""
    if not body:
        return None, None
    if encoding and encoding.lower() != "identity":
        if encoding.lower() not in ("gzip", "deflate"):
            raise ValueError(f"Content-Encoding {encoding!r} is not read here")
        import zlib

        inflate = zlib.decompressobj(47)  # either, by its header
        body = inflate.decompress(body, _MAX_PLAIN_BYTES)
        if inflate.unconsumed_tail:
            raise ValueError(f"the body inflates to more than {_MAX_PLAIN_BYTES} bytes")
    kind = media_type.partition(";")[0].strip().lower()
    if not kind or kind == "application/json" or kind.endswith("+json"):
        text = body.decode()
        try:
            # What may hold a lone surrogate is written again: it would spoil the block for its neighbours.
            values, is_plain = _FINITE.decode(text), b"\\ud" not in body and b"\\uD" not in body
        except _NotFiniteError:
            values, is_plain = json.loads(text, parse_constant=lambda _: None), False
        if not isinstance(values, dict):
            return {"value": values}, None
        if is_plain and (b"\n" in body or b"\r" in body):
            body = body.replace(b"\n", b" ").replace(b"\r", b" ")  # in a valid document none stands in a text
        return values, body if is_plain else None
    if kind.startswith("text/") and len(body) <= _LONG_TEXT:
        return {"body": body.decode("utf-8", "replace")}, None
    return {"body": {"$bytes": body, "media_type": kind}}, None


def _placed(values: dict[str, Any], place: Callable[[Any], int]) -> dict[str, Any]:
    body = values.get("body")
    if isinstance(body, dict) and isinstance(body.get("$bytes"), bytes):
        return {"body": {"$part": place(body["$bytes"]), "media_type": body["media_type"]}}
    return values


class _NotFiniteError(ValueError):
    """NaN or Infinity stands in a body."""


def _refuse(name: str) -> None:
    raise _NotFiniteError(name)


_FINITE = json.JSONDecoder(parse_constant=_refuse)
_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _dumps(record: Any) -> bytes:
    # A lone surrogate is no text, and would spoil the body for its neighbours.
    return _COMPACT.encode(record).encode("utf-8", "replace")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


# ---- the ends of a process ---------------------------------------------------------------------------------


def _after_fork() -> None:
    global _memory  # the lock may be held by a thread that does not exist here
    _memory = _Memory()
    for client in list(_clients):
        client._reset()


def _at_exit() -> None:
    deadline = time.monotonic() + _EXIT_S
    for client in list(_clients):
        # A server that failed does not delay the exit.
        client._flush(max(0.0, deadline - time.monotonic()), is_patient=False)
    for client in list(_clients):
        with contextlib.suppress(Exception):  # stderr may be closed
            client._say_left()
        client._stop(0.0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
