"""A model behind HTTP as a Predictor.

One JSON request per block: ``{"instances": [{"age": 41, …}, …]}``, answered by
``{"predictions": [{"label": 1, "score": 0.9}, …]}`` with one entry per instance, in order (the form of
KServe V1 and TensorFlow Serving). Where an entry is a bare value, it is the ``label``.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.addresses import AddressGuard
from outrider.assertions import Batch, Predictor
from outrider.errors import ServerError
from outrider.http_client import HttpClient

MAX_ANSWER_BYTES = 67_108_864


def endpoint(
    url: str,
    *,
    timeout_s: float = 30.0,
    block_rows: int = 256,
    key_env: str | None = "OUTRIDER_MODEL_KEY",
    guard: AddressGuard | None = None,
) -> Predictor:
    """Predictor that posts to ``url``.

    Redirects are not followed, because the key would go with them.

    Parameters
    ----------
    timeout_s
        For one request, until its last byte is there.
    block_rows
        Instances in one request.
    key_env
        Environment variable whose value is sent as bearer token when set; None sends none.
    guard
        Checks the address of every connection; None where the operator named the address.

    Raises
    ------
    ValueError
        If ``url`` is not http or https. The predictor raises it where what was asked is refused (4xx), or
        the answer has another form, and :class:`~outrider.errors.ServerError` where none came.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"an http:// or https:// address expected, got {url!r}")
    client = HttpClient(url, guard=guard)

    def predict(batch: Batch) -> Mapping[str, NDArray[Any]]:
        entries: list[Mapping[str, Any]] = []
        for start in range(0, batch.rows, block_rows):
            block = batch.slice(start, min(block_rows, batch.rows - start))
            entries += _post(client, url, block, timeout_s, key_env)
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: _array([entry.get(name) for entry in entries]) for name in names}

    return predict


def _post(
    client: HttpClient, url: str, batch: Batch, timeout_s: float, key_env: str | None
) -> list[Mapping[str, Any]]:
    instances = [record.get("inputs", {}) for record in batch.to_records()]
    key = os.environ.get(key_env) if key_env else None
    try:
        answer = client.post_json(
            url, {"instances": instances}, key=key, deadline_s=timeout_s, max_bytes=MAX_ANSWER_BYTES
        )
    except TimeoutError as error:
        raise ServerError(f"{url} gave no answer within {timeout_s:g} s: {error}") from error
    except OSError as error:
        raise ServerError(f"{url} cannot be reached: {error}") from error
    if not answer.is_success:
        kind = ValueError if answer.is_refusal else ServerError
        raise kind(f"{url} answered {answer.status}: {answer.beginning(500)}")
    if answer.is_cut:
        raise ValueError(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError) as error:  # perhaps of somebody in between
        raise ServerError(f"{url} gave no JSON answer: {error}") from error
    predictions = body.get("predictions") if isinstance(body, dict) else None
    if not isinstance(predictions, list) or len(predictions) != batch.rows:
        raise ValueError(
            f'{url}: {{"predictions": [...]}} with {batch.rows} entries expected, got {str(body)[:200]}'
        )
    return [entry if isinstance(entry, Mapping) else {"label": entry} for entry in predictions]


def _array(values: list[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) or value is None for value in values):
        return np.array(values, dtype=object)
    return np.array(values)
