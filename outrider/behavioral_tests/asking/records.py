"""Predictor for a model server that takes records over HTTP."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .server import ModelServer


class RecordForm(Protocol):
    """Request and response format of records."""

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Request body for records. Raises if the format cannot represent them."""

    def decode(
        self, bodies: Iterable[Mapping[str, Any]], rows: Sequence[int], /
    ) -> Mapping[str, NDArray[Any]]:
        """Answers by output name. Raises ValueError for response bodies of another format."""


@dataclass(frozen=True, slots=True)
class V1Instances:
    """KServe V1 (TensorFlow Serving) format: instances, answered by predictions."""

    url: str
    """Address named in error messages."""

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Body for some records."""
        return {"instances": [record.get("inputs", {}) for record in batch.to_records()]}

    def decode(
        self, bodies: Iterable[Mapping[str, Any]], rows: Sequence[int], /
    ) -> Mapping[str, NDArray[Any]]:
        """Answers by name."""
        entries = [*chain.from_iterable(map(self._entries, bodies, rows))]
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: _array([entry.get(name) for entry in entries]) for name in names}

    def _entries(self, body: Mapping[str, Any], rows: int) -> list[Mapping[str, Any]]:
        found = body.get("predictions")
        if not isinstance(found, list) or len(found) != rows:
            raise ValueError(
                f'{self.url}: {{"predictions": [...]}} with {rows} entries expected, got {str(body)[:200]}'
            )
        return [entry if isinstance(entry, Mapping) else {"label": entry} for entry in found]


class ServedModel:
    """Predictor that posts records in blocks.

    Raises ValueError if the server refuses a request (4xx) or answers in another format, and
    :class:`~outrider.errors.ServerError` if no answer arrives.
    """

    def __init__(self, server: ModelServer, form: RecordForm, *, block_rows: int = 256) -> None:
        self._server, self._form, self._block_rows = server, form, block_rows

    def __call__(self, batch: Batch, /) -> Mapping[str, NDArray[Any]]:
        """Answers for each record of ``batch``."""
        return self._server.watched(lambda: self._ask(batch))

    def _ask(self, batch: Batch) -> Mapping[str, NDArray[Any]]:
        starts = range(0, batch.rows, self._block_rows)
        blocks = [batch.slice(start, min(self._block_rows, batch.rows - start)) for start in starts]
        return self._form.decode(self._bodies(blocks), [block.rows for block in blocks])

    def _bodies(self, blocks: Sequence[Batch]) -> Iterator[Mapping[str, Any]]:
        for block in blocks:
            yield self._server.ask(self._form.encode(block))


def endpoint(
    url: str,
    *,
    timeout_s: float = 30.0,
    block_rows: int = 256,
    key_env: str | None = "OUTRIDER_MODEL_KEY",
) -> ServedModel:
    """Predictor that posts records to a model server (KServe V1).

    Parameters
    ----------
    timeout_s
        Timeout of one request in seconds, until the last byte of its response.
    block_rows
        Records per request.
    key_env
        Environment variable with the bearer token, sent if it is set; None sends none.

    Raises
    ------
    ValueError
        If ``url`` is not http or https.
    """
    server = ModelServer(url, deadline_s=timeout_s, key_env=key_env)
    return ServedModel(server, V1Instances(server.name), block_rows=block_rows)


def _array(values: list[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) or value is None for value in values):
        return np.array(values, dtype=object)
    return np.array(values)
