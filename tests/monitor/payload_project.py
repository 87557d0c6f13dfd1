"""A project whose model looks at encoded images, and images for it."""

import base64
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from outrider.assertions import Batch
from outrider.dataops.journal.journal import Entry
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.settings.payloads import payload_rules

from .decoding import decode_body
from .workbench import Workbench

CONFIG = """
[models.toy]
predictor = "model.py:predict"
inputs = ["image"]
target = "label"
classes = [0, 1]
assertions = ["checks.py"]

[models.toy.columns]
"inputs.image" = "image(4, 4)"
"inputs.note" = "text"

[models.toy.intake]
payload_roots = ["images"]
fetch_s = 5.0
"""

MODEL = '''
"""Bright images are 1."""


def predict(batch):
    brightness = batch.tensor("inputs.image").mean(axis=(1, 2))
    return {"label": (brightness > 0.5).astype(int), "score": abs(brightness - 0.5) + 0.5}
'''

CHECKS = '''
from outrider.assertions import Window, assertion


@assertion(level="critical")
def glaring(batch):
    """Brighter than 0.9."""
    assert batch.tensor("inputs.image").shape[1:] == (4, 4)
    return batch.tensor("inputs.image").mean(axis=(1, 2)) > 0.9


@assertion
def shouted(batch):
    """A note in capitals."""
    notes = batch.column("inputs.note") if batch.has("inputs.note") else [None] * batch.rows
    return [bool(note) and note.isupper() for note in notes]


@assertion(window=Window(rows=2, columns=("inputs.image",)))
def jumps(batch):
    """Brightness differs by more than half from the one before of the same entity."""
    brightness = batch.tensor("inputs.image").mean(axis=(1, 2))
    rows = batch.previous_rows()
    return [bool(row >= 0 and abs(value - brightness[row]) > 0.5) for value, row in zip(brightness, rows)]
'''


def write_project(folder: Path, config: str = CONFIG) -> Path:
    """Configuration in a new folder."""
    (folder / "images").mkdir(parents=True)
    (folder / "outrider.toml").write_text(config)
    (folder / "model.py").write_text(MODEL)
    (folder / "checks.py").write_text(CHECKS)
    return folder / "outrider.toml"


def encoded(brightness: float, *, size: tuple[int, int] = (6, 5), kind: str = "PNG") -> bytes:
    """An even grey image."""
    sink = io.BytesIO()
    Image.new("L", size, round(255 * brightness)).save(sink, kind)
    return sink.getvalue()


def inline(data: bytes) -> dict[str, Any]:
    """JSON form of bytes."""
    return {"$bytes": base64.b64encode(data).decode()}


def stored_at(path: Path, data: bytes) -> dict[str, Any]:
    """Write a file, and the JSON form of a reference to it."""
    path.write_bytes(data)
    return {"$uri": path.as_uri(), "sha256": hashlib.sha256(data).hexdigest()}


def feeder(bench: Workbench) -> Callable[..., int]:
    """Feeds records through the intake's decoder; the number of the last block."""
    model = bench.settings.models["toy"]
    rules = {"toy": payload_rules(bench.settings, "toy")}
    decoder = Decoder(SchemaBook({"toy": model.columns}, payloads=rules))

    def feed(*records: dict[str, Any]) -> int:
        import msgspec

        bench.now_us += 100_000
        body = msgspec.json.encode(list(records))
        decoded = decode_body(
            decoder, body, kind="records", form="json", received_us=bench.now_us, model="toy"
        )
        assert not decoded.rejected, decoded.rejected.listed
        return bench.journal.append([_entry(block) for block in decoded.blocks], bench.now_us)[-1]

    return feed


def _entry(block: Any) -> Entry:
    batch = Batch(block.table, model=block.model)
    return Entry(kind="records", model="toy", rows=batch.rows, payload=batch.to_ipc())


def grey(values: NDArray[Any], *, kind: str = "PNG", mode: str | None = None) -> bytes:
    """Any array as an encoded image."""
    sink = io.BytesIO()
    Image.fromarray(values, mode).save(sink, kind)
    return sink.getvalue()


def bright(batch: Batch) -> list[float]:
    """Mean of each image."""
    return [float(value) for value in np.asarray(batch.tensor("inputs.image")).mean(axis=(1, 2))]
