"""The hook inside a production service: copies what the model saw and said, and gets out of the way.

Standard library only. A call snapshots its values into a bounded ring and returns; one daemon thread
sends. Nothing here raises into the caller, waits for the network, or grows beyond 32 MB.

    client = Client(model="churn")              # finds OUTRIDER_URL and OUTRIDER_KEY
    client.capture({"age": 41}, {"score": 0.91}, entity="u7")
"""

import atexit
import contextlib
import functools
import itertools
import marshal
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar, cast

from .sender import Sender, find_key

P = ParamSpec("P")
R = TypeVar("R")
App = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[MutableMapping[str, Any]]],
        Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ],
    Awaitable[None],
]

DEFAULT_URL = "http://127.0.0.1:8470"
RING_BYTES = 20_000_000
_ENTRY_BYTES = 80  # of a bytes object and its place in the ring
_PLAIN = frozenset({bool, int, float, str, type(None)})
_EXIT_S = 2.0

_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


@dataclass(frozen=True, slots=True)
class Counts:
    """Where every call has gone: ``offered`` is always the sum of the others.

    Parameters
    ----------
    offered
        Calls of `Client.capture` and `Client.label`.
    sampled_out
        Left out by ``sample``.
    shed
        Dropped because the ring was full, or because the client was closed.
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
        Of the service; default ``OUTRIDER_URL``, else ``http://127.0.0.1:8470``.
    key
        Default ``OUTRIDER_KEY``, else the file ``OUTRIDER_KEY_FILE``, else ``outrider-data/key``.
    model
        Name of the model as in ``outrider.toml``.
    version
        Version of the model that answers; `capture` may override it.
    sample
        Share of calls that is kept, in (0, 1]; what is kept carries the weight 1 / sample.

    Examples
    --------
    >>> client = Client(model="churn")
    >>> record_id = client.capture({"age": 41}, {"score": 0.91}, entity="u7")
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
        sample: float = 1.0,
    ) -> None:
        if not 0.0 < sample <= 1.0:
            raise ValueError(f"sample must be above 0 and at most 1, got {sample}; 1 keeps every call")
        self.url = url or os.environ.get("OUTRIDER_URL") or DEFAULT_URL
        self.model = model
        self.version = version
        self._key = key
        self._sample = sample
        self._weight = 1.0 / sample
        self._disabled = os.environ.get("OUTRIDER_DISABLED", "") not in ("", "0")
        self._reset()
        _clients.add(self)

    def capture(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] | None,
        *,
        id: str | None = None,
        entity: str | None = None,
        attrs: Mapping[str, Any] | None = None,
        version: str | None = None,
    ) -> str | None:
        """Copy one request and its answer; values are taken as they are now.

        Parameters
        ----------
        inputs, outputs
            By field name: numbers, text, booleans, None, lists, dictionaries, numpy arrays, torch tensors.
        id
            Made when None.
        entity
            User, camera, patient, conversation: the key of windows and consistency.
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
            if self._sample < 1.0 and random.random() >= self._sample:
                self._count("sampled_out")
                return None
            if id is None:
                id = self._prefix + format(next(self._numbers), "x")
            entry = (
                "records", id, time.time(), entity, version or self.version, self._weight,
                _frozen(inputs), _frozen(outputs), _frozen(attrs),
            )  # fmt: skip
            return id if self._push(marshal.dumps(entry)) else None
        except Exception:  # noqa: BLE001 - never an exception into the caller
            self._count("error")
            return None

    def label(
        self,
        id: str,
        label: Mapping[str, Any],
        *,
        source: str = "human",
        ts: float | None = None,
    ) -> bool:
        """Tell what is true for a record, as soon or as late as it is known.

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
            entry = ("labels", id, time.time() if ts is None else ts, source, _frozen(label))
            return self._push(marshal.dumps(entry))
        except Exception:  # noqa: BLE001 - never an exception into the caller
            self._count("error")
            return False

    def capture_bodies(self, request: bytes, response: bytes, *, id: str | None = None) -> None:
        """Copy a request and a response that are JSON objects; they are parsed by the sending thread."""
        if self._disabled:
            return
        try:
            if self._sample < 1.0 and random.random() >= self._sample:
                self._count("sampled_out")
                return
            id = id or self._prefix + format(next(self._numbers), "x")
            entry = ("bodies", id, time.time(), self.version, self._weight, bytes(request), bytes(response))
            self._push(marshal.dumps(entry))
        except Exception:  # noqa: BLE001 - never an exception into the caller
            self._count("error")

    @property
    def counts(self) -> Counts:
        """Where every call has gone so far; balanced at every instant."""
        with self._lock:
            t = self._tally
            queued = len(self._ring) + self._in_hand
            offered = sum(t.values()) + queued
            return Counts(offered, t["sampled_out"], t["shed"], t["error"], t["acknowledged"], queued)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything queued has been answered; False when ``timeout`` seconds were not enough."""
        deadline = time.monotonic() + timeout
        while self.counts.queued:
            if self._sender is None or time.monotonic() >= deadline:
                return False
            self._sender.wake()
            time.sleep(0.002)
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Flush for at most ``timeout`` seconds and stop the thread; later calls are shed and counted."""
        with contextlib.suppress(Exception):
            self.flush(timeout)
            self._closed = True
            if self._sender is not None:
                self._sender.stop()

    # ---- inside ----------------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Empty state of this process; in a forked child too, where the parent keeps what is queued."""
        self._lock = threading.Lock()
        self._ring: deque[bytes] = deque()
        self._ring_bytes = 0
        self._in_hand = 0
        self._tally = dict.fromkeys(("sampled_out", "shed", "error", "acknowledged"), 0)
        self._numbers = itertools.count()
        self._prefix = f"{time.time_ns() // 1_000_000:012x}-{os.urandom(5).hex()}-"
        self._closed = False
        self._sender: Sender | None = None

    def _push(self, entry: bytes) -> bool:
        size = len(entry) + _ENTRY_BYTES
        with self._lock:
            if self._closed or self._ring_bytes + size > RING_BYTES:
                self._tally["shed"] += 1
                return False
            self._ring.append(entry)
            self._ring_bytes += size
            if self._sender is not None:
                return True
            self._sender = Sender(self, url=self.url, key=lambda: find_key(self._key), model=self.model)
        self._sender.start()
        return True

    def _count(self, name: Literal["sampled_out", "shed", "error", "acknowledged"], number: int = 1) -> None:
        with self._lock:
            self._tally[name] += number

    def take(self, most: int, max_bytes: int) -> list[bytes]:
        """Entries for the sender, oldest first; they count as queued until `settle`."""
        taken: list[bytes] = []
        size = 0
        with self._lock:
            while self._ring and len(taken) < most and size < max_bytes:
                entry = self._ring.popleft()
                taken.append(entry)
                size += len(entry)
                self._ring_bytes -= len(entry) + _ENTRY_BYTES
            self._in_hand += len(taken)
        return taken

    def settle(self, *, acknowledged: int = 0, error: int = 0) -> None:
        """Record what became of taken entries."""
        with self._lock:
            self._in_hand -= acknowledged + error
            self._tally["acknowledged"] += acknowledged
            self._tally["error"] += error


def watch(
    *,
    model: str,
    version: str | None = None,
    client: Client | None = None,
    id: str | None = None,
    entity: str | None = None,
    attrs: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a predict function: every call is captured after it returned.

    Parameters
    ----------
    model, version
        What answers.
    client
        Default: one made from the environment.
    id, entity
        Names of arguments that carry them; they are not inputs then.
    attrs
        Names of arguments that are attributes rather than inputs.

    Returns
    -------
    callable
        The function, sync or async, unchanged to its callers. Arguments become inputs by name; a result
        that is a dictionary becomes the outputs, anything else the output ``value``.

    Examples
    --------
    >>> @watch(model="churn", client=Client(model="churn"))
    ... def predict(age):
    ...     return {"score": 0.9}
    >>> predict(41)
    {'score': 0.9}
    """
    used = client if client is not None else Client(model=model, version=version)
    special = {name for name in (id, entity) if name is not None}
    attributes = frozenset(attrs)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = getattr(function, "__code__", None)
        if code is None:
            raise TypeError(
                f"watch needs a plain function, got {type(function).__name__}; call Client.capture"
            )
        names = code.co_varnames[: code.co_argcount]
        positional = getattr(function, "__defaults__", None) or ()
        defaults = dict(zip(names[len(names) - len(positional) :], positional, strict=True))
        defaults |= getattr(function, "__kwdefaults__", None) or {}

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
            # Copied now: the function may change what it was given.
            try:
                values = defaults | dict(zip(names, args, strict=False)) | kwargs
                values.pop("self", None)
                return marshal.dumps({name: _frozen(value) for name, value in values.items()})
            except Exception:  # noqa: BLE001 - never an exception into the caller
                used._count("error")
                return None

        def after(copied: bytes | None, result: Any) -> None:
            if copied is None:
                return
            values = marshal.loads(copied)
            used.capture(
                {n: v for n, v in values.items() if n not in special and n not in attributes},
                result if isinstance(result, Mapping) else {"value": result},
                id=_text(values.get(id)) if id else None,
                entity=_text(values.get(entity)) if entity else None,
                attrs={n: v for n, v in values.items() if n in attributes} or None,
                version=version,
            )

        if code.co_flags & 0x80:  # CO_COROUTINE; inspect costs 10 ms to import

            @functools.wraps(function)
            async def watched_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                copied = before(args, kwargs)
                result = await cast("Callable[P, Awaitable[Any]]", function)(*args, **kwargs)
                after(copied, result)
                return result

            return cast("Callable[P, R]", watched_async)

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            copied = before(args, kwargs)
            result = function(*args, **kwargs)
            after(copied, result)
            return result

        return watched

    return decorate


class OutriderMiddleware:
    """ASGI middleware: captures the JSON request and response of some paths as inputs and outputs.

    Parameters
    ----------
    app
        The service.
    paths
        Exact paths that are captured, successful POST requests only.
    client
        Where to.
    max_bytes
        Larger bodies pass unseen.
    id_header
        Request header with the record's id.
    """

    def __init__(
        self,
        app: App,
        *,
        paths: Iterable[str],
        client: Client,
        max_bytes: int = 1_000_000,
        id_header: str = "x-request-id",
    ) -> None:
        self._app = app
        self._paths = frozenset(paths)
        self._client = client
        self._max_bytes = max_bytes
        self._id_header = id_header.lower().encode()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Serve the request unchanged, and copy it when it is one of ours."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        request, response = bytearray(), bytearray()
        status = 0

        async def copy_request() -> MutableMapping[str, Any]:
            message = await receive()
            if len(request) <= self._max_bytes:
                request.extend(message.get("body", b""))
            return message

        async def copy_response(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif len(response) <= self._max_bytes:
                response.extend(message.get("body", b""))
            await send(message)

        await self._app(scope, copy_request, copy_response)
        if 200 <= status < 300 and max(len(request), len(response)) <= self._max_bytes:
            id = dict(scope.get("headers", ())).get(self._id_header, b"").decode("latin-1") or None
            self._client.capture_bodies(bytes(request), bytes(response), id=id)


def _frozen(value: Any) -> Any:
    """Value that marshal can copy exactly: containers of plain values, arrays as a tagged tuple."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is dict:
        for inner in value.values():
            if type(inner) not in _PLAIN:
                return {str(name): _frozen(inner) for name, inner in value.items()}
        return value
    if kind is list or kind is tuple:
        if kind is tuple and len(value) == 4 and value[0] == "\0nd":
            return value  # frozen already
        return value if _PLAIN.issuperset(map(type, value)) else [_frozen(inner) for inner in value]
    return _frozen_other(value)


def _frozen_other(value: Any) -> Any:
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().numpy()
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8 or value.dtype == "float16":
            return _frozen(value.tolist())
        if not value.shape:
            return value.item()
        return ("\0nd", value.dtype.char, tuple(value.shape), value.tobytes())
    if isinstance(value, Mapping):
        return {str(name): _frozen(inner) for name, inner in value.items()}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):  # an enum, or a subclass of a plain type
            return kind(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "model_dump"):
        return _frozen(value.model_dump(mode="json"))
    raise TypeError(f"a {type(value).__name__} cannot be captured")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _after_fork() -> None:
    for client in list(_clients):
        client._reset()


def _at_exit() -> None:
    deadline = time.monotonic() + _EXIT_S
    for client in list(_clients):
        sender = client._sender
        if sender is not None and not sender.is_backing_off:  # a dead server does not delay the exit
            client.close(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
