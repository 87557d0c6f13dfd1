"""A model behind HTTP as a Predictor.

One JSON request per block: ``{"instances": [{"age": 41, …}, …]}``, answered by
``{"predictions": [{"label": 1, "score": 0.9}, …]}`` with one entry per instance, in order (the form of
KServe V1 and TensorFlow Serving). Where an entry is a bare value, it is the ``label``.
"""

import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.errors import ServerError


def endpoint(url: str, *, timeout_s: float = 30.0, block_rows: int = 256) -> Predictor:
    """Predictor that posts to ``url``; ``OUTRIDER_MODEL_KEY`` is sent as bearer token when set.

    Raises
    ------
    ValueError
        If ``url`` is not http or https.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"an http:// or https:// address expected, got {url!r}")

    def predict(batch: Batch) -> Mapping[str, NDArray[Any]]:
        entries: list[Mapping[str, Any]] = []
        for start in range(0, batch.rows, block_rows):
            entries += _post(url, batch.slice(start, min(block_rows, batch.rows - start)), timeout_s)
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: _array([entry.get(name) for entry in entries]) for name in names}

    return predict


def _post(url: str, batch: Batch, timeout_s: float) -> list[Mapping[str, Any]]:
    instances = [record.get("inputs", {}) for record in batch.to_records()]
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OUTRIDER_MODEL_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = Request(url, json.dumps({"instances": instances}).encode(), headers)
    try:
        with urlopen(request, timeout=timeout_s) as response:
            body = json.load(response)
    except HTTPError as error:
        raise ServerError(
            f"{url} answered {error.code}: {error.read(500).decode(errors='replace')}"
        ) from error
    except (URLError, TimeoutError, json.JSONDecodeError) as error:
        raise ServerError(f"{url} gave no JSON answer within {timeout_s} s: {error}") from error
    predictions = body.get("predictions") if isinstance(body, dict) else None
    if not isinstance(predictions, list) or len(predictions) != batch.rows:
        raise ServerError(
            f'{url}: {{"predictions": [...]}} with {batch.rows} entries expected, got {str(body)[:200]}'
        )
    return [entry if isinstance(entry, Mapping) else {"label": entry} for entry in predictions]


def _array(values: list[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) or value is None for value in values):
        return np.array(values, dtype=object)
    return np.array(values)
