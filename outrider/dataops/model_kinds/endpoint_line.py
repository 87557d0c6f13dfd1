"""Connection to an endpoint: address, key, deadline and circuit breaker."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.addresses import AddressGuard
from outrider.behavioral_tests import chat
from outrider.errors import ConfigError, ServerError
from outrider.http_client import HttpClient, HttpStatusError

from .breaker import Breaker

MAX_ANSWER_BYTES = 67_108_864
FIRST_REST_S = 1.0
LONGEST_REST_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """Connection to an address: deadline, key, guard and breaker.

    After a request without an answer nobody asks again for a second, then two, up to a minute: a block that
    could not be answered is halved in search of a bad record, and must not wait for each half.

    Attributes
    ----------
    key_env
        Environment variable with the key; None for no key.
    guard
        Of an address that an upload named.
    """

    url: str
    key_env: str | None
    deadline_s: float
    guard: AddressGuard | None
    breaker: Breaker = field(
        default_factory=lambda: Breaker(failures=1, first_rest_s=FIRST_REST_S, longest_rest_s=LONGEST_REST_S)
    )
    client: HttpClient = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", HttpClient(self.url, guard=self.guard))

    def check_rest(self) -> None:
        """Raise ServerError while the address is left alone."""
        if not self.breaker.allows():
            raise ServerError(f"{self.url} gave no answer; requests pause for a while")

    def post(self, body: Mapping[str, Any], *, until: float | None = None) -> dict[str, Any]:
        """JSON object that is answered.

        Parameters
        ----------
        until
            Time of the monotonic clock at which it must be there; default ``deadline_s`` from now.

        Raises
        ------
        ValueError
            If what was asked was refused (status 4xx), or what came is no JSON object.
        ServerError
            If no answer came: unreachable, too late, overloaded (429) or broken (5xx).
        """
        left_s = self.deadline_s if until is None else until - time.monotonic()
        if left_s <= 0:
            raise ServerError(f"{self.url}: no time left of {self.deadline_s:g} s")
        key = os.environ.get(self.key_env) if self.key_env else None
        try:
            return chat.post(
                self.client, self.url, body, key=key, deadline_s=left_s, max_bytes=MAX_ANSWER_BYTES
            )
        except HttpStatusError as error:
            text = f"{self.url} answered {error.answer.status}: {error.answer.beginning(300)}"
            if error.answer.is_refusal:
                raise ValueError(text) from error
            raise ServerError(text) from error
        except TimeoutError as error:
            raise ServerError(f"{self.url} gave no answer within {self.deadline_s:g} s") from error
        except OSError as error:
            raise ServerError(f"{self.url} cannot be reached: {error}") from error


def positive(options: Mapping[str, Any], name: str, default: float) -> float:
    """Option that is a number above zero.

    Raises
    ------
    ConfigError
        If it is not.
    """
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"options.{name}: a number above 0 expected, got {value!r}")
    return float(value)


def watched(line: Line, ask: Callable[[], Any]) -> Any:
    """Result of ``ask``; a failure opens the breaker."""
    line.check_rest()
    try:
        found = ask()
    except ServerError:
        line.breaker.failed()
        raise
    line.breaker.answered()
    return found
