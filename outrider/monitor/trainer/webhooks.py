"""Outbox delivery, signed as Standard Webhooks, to allowed addresses."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Engine
from standardwebhooks import Webhook

from outrider.addresses import ANYWHERE, AddressGuard, origin_of
from outrider.dataops import outbox
from outrider.dataops.state.database import DatabaseChanges, now_us, write
from outrider.dataops.uploads.job_tokens import with_token
from outrider.errors import OutriderError
from outrider.http_client import HttpClient
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.webhook_secrets import webhook_secret

logger = logging.getLogger(__name__)
TIMEOUT_S = 10.0
READ_BYTES = 4096
POLL_S = 0.25
TURN_S = 5.0
"""Time of an address before it waits for its next turn."""
MOST_TURNS = 8
"""Addresses served at a time."""


class Refused(OutriderError):  # noqa: N818 - reads as the event it is
    ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    events: tuple[str, ...]
    secret: str | None
    allow_private: bool


def endpoints(settings: Settings) -> list[Endpoint]:
    return [
        Endpoint(hook.url, hook.events, webhook_secret(settings, hook), hook.allow_private)
        for hook in settings.webhooks
    ]


def send(endpoint: Endpoint, message_id: str, payload: str, *, now: datetime) -> int:
    """POST one message; returns the 2xx status.

    Redirects are not followed, because they would bypass the check of the address; Refused or OSError
    otherwise.
    """
    try:
        origin_of(endpoint.url)
    except ValueError as error:
        raise Refused(f"{endpoint.url}: {error}") from None
    guard = AddressGuard(
        networks=ANYWHERE if endpoint.allow_private else (),
        remedy="; set allow_private = true for this webhook if it is meant",
    )
    headers = {"content-type": "application/json", "webhook-id": message_id}
    headers["webhook-timestamp"] = str(int(now.timestamp()))
    if endpoint.secret is not None:
        headers["webhook-signature"] = Webhook(endpoint.secret).sign(message_id, now, payload)
    answer = HttpClient(endpoint.url, guard=guard).exchange(
        "POST", endpoint.url, content=payload.encode(), headers=headers,
        deadline_s=TIMEOUT_S, max_bytes=READ_BYTES,
    )  # fmt: skip
    if not answer.is_success:
        raise Refused(f"{endpoint.url} answered {answer.status} {answer.reason}")
    return answer.status


def deliver(engine: Engine, url: str, hook: Endpoint | None) -> int:
    """Deliver due messages of one address; returns their number.

    A failure ends its turn; ``hook`` is None where the configuration dropped the address.
    """
    until = time.monotonic() + TURN_S
    taken = 0
    while time.monotonic() < until:
        with write(engine) as connection:
            message = outbox.claim(connection, url, now_us=now_us())
        if message is None:
            break
        try:
            if hook is None:
                raise Refused(f"{url} is no longer in the configuration")
            payload = message.payload
            if message.event == "retrain.requested":
                with engine.connect() as connection:
                    payload = with_token(connection, payload)
            send(hook, message.id, payload, now=datetime.now(UTC))
        except (OSError, Refused) as error:
            text = f"{type(error).__name__}: {error}"
            logger.warning("webhook %s, attempt %d: %s", message.id, message.attempts, text)
            with write(engine) as connection:
                outbox.failed(connection, message.id, text)
            break
        with write(engine) as connection:
            outbox.delivered(connection, message.id, now_us=now_us())
        taken += 1
    return taken


def deliver_until(engine: Engine, hooks: Sequence[Endpoint], stop: threading.Event) -> None:
    """Deliver due messages until ``stop``; a slow address holds up only its own."""
    by_url = {hook.url: hook for hook in hooks}
    turns: dict[str, Future[int]] = {}
    changes = DatabaseChanges.of(engine)
    pool = ThreadPoolExecutor(MOST_TURNS, thread_name_prefix="webhook")
    while not stop.is_set():
        try:
            with engine.connect() as connection:  # without the write lock: this is asked often
                due = outbox.due_urls(connection, now_us=now_us())
            for url in due:
                if url not in turns:
                    turns[url] = pool.submit(deliver, engine, url, by_url.get(url))
            for url in [url for url, turn in turns.items() if turn.done()]:
                turns.pop(url).result()
        except Exception:
            logger.exception("webhook delivery failed; it is tried again")
        changes.wait(stop, every_s=POLL_S, at_most_s=1.0)
    pool.shutdown(cancel_futures=True)
