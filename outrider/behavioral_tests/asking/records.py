"""A model behind HTTP that takes records, as a Predictor."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch

from .server import ModelServer


class RecordForm(Protocol):
    """Form in which records travel."""

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Body for some records; raises where the form cannot hold them."""

    def decode(
        self, bodies: Iterable[Mapping[str, Any]], rows: Sequence[int], /
    ) -> Mapping[str, NDArray[Any]]:
        """Answers by name; ValueError for bodies of another form."""


@dataclass(frozen=True, slots=True)
class V1Instances:
    """Records as instances, answered by predictions (KServe V1, TensorFlow Serving).

    ``{"instances": [{"age": 41, …}, …]}`` is answered by ``{"predictions": [{"label": 1, …}, …]}``, one
    entry per instance, in order; an entry that is a bare value is the ``label``.
    """

    url: str
    """Named in messages."""

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

    It raises ValueError where the server refuses what is asked (4xx) or answers in another form, and
    :class:`~outrider.errors.ServerError` where no answer came.
    """

    def __init__(self, server: ModelServer, form: RecordForm, *, block_rows: int = 256) -> None:
        self._server, self._form, self._block_rows = server, form, block_rows

    def __call__(self, batch: Batch, /) -> Mapping[str, NDArray[Any]]:
        """Answer every record."""
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
    """Predictor that posts instances to an address that the operator names.

    Parameters
    ----------
    timeout_s
        For one request, until its last byte is there.
    block_rows
        Instances in one request.
    key_env
        Environment variable whose value is sent as bearer token when set; None sends none.

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
