"""Embeddings of answer texts, by a local model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import VECTORS
from outrider.assertions.comparison.embedding_reach import EmbeddingReach
from outrider.assertions.comparison.energy_witness import unit_vectors
from outrider.errors import ConfigError

from .answers import Answers, Asker
from .questions import MODEL

TEXT, VECTOR = "outputs.text", "outputs.embedding"


class TextEmbedder:
    """Local embedding model; each distinct text is embedded once per call."""

    def __init__(self, asker: Asker, seed: int = 0) -> None:
        self._asker = asker
        self.reach = EmbeddingReach(np.random.default_rng([seed, 2]))

    def embedded(self, answers: Sequence[Answers | None]) -> list[Answers | None]:
        """Answers with unit vectors of their texts; ``answers[0]`` are production's and calibrate
        the reach (least distance that counts as a difference)."""
        rows = [_with_text(each) for each in answers]
        texts = [_texts(each, at) for each, at in zip(answers, rows, strict=True)]
        forms = self.reach.exchanged(texts[0])
        flat = [text for each in texts for text in each]
        if not flat:
            return list(answers)
        vectors = self.vectors([*flat, *(form for _, form in forms)])
        self._measure(vectors, np.array([row for row, _ in forms], dtype=np.intp), len(flat))
        parts = np.split(vectors[: len(flat)], np.cumsum([len(at) for at in rows])[:-1])
        return [_joined(each, at, part) for each, at, part in zip(answers, rows, parts, strict=True)]

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Unit vector of each text, shape (n, d); NaN if the model gave none."""
        single = list(dict.fromkeys(texts))
        columns = {"id": [str(at) for at in range(len(single))], "inputs.text": pa.array(single, pa.string())}
        answers = self._asker.ask(Batch.from_columns(columns, model=MODEL, rows=len(single)))
        if not answers.is_answered.any():
            raise ConfigError(f"--embed: {self._asker.name} embeds no text: {answers.why[0]}")
        if not answers.outputs.has(VECTOR):
            there = ", ".join(name for name in answers.outputs.names if name.startswith("outputs."))
            raise ConfigError(f"--embed: {self._asker.name} answers {there or 'nothing'}; {VECTOR} expected")
        found = np.array(answers.outputs.tensor(VECTOR, null=np.nan), dtype=np.float64)
        found = unit_vectors(found.reshape(len(single), -1))
        found[~answers.is_answered] = np.nan
        place = {text: at for at, text in enumerate(single)}
        return found[[place[text] for text in texts]]

    def close(self) -> None:
        self._asker.close()

    def _measure(self, vectors: NDArray[np.float64], rows: NDArray[np.intp], start: int) -> None:
        """Calibrate the reach with production's texts and their altered copies, whose vectors
        begin at ``start``."""
        apart = np.linalg.norm(vectors[rows] - vectors[start:], axis=1)
        self.reach.update(np.array([apart[rows == row].min() for row in np.unique(rows)]))


def _with_text(answers: Answers | None) -> NDArray[np.intp]:
    if answers is None or not answers.outputs.has(TEXT):
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(answers.is_answered)


def _texts(answers: Answers | None, rows: NDArray[np.intp]) -> list[str]:
    if answers is None or not len(rows):
        return []
    return ["" if text is None else str(text) for text in answers.outputs.take(rows).arrow(TEXT).to_pylist()]


def _joined(answers: Answers | None, rows: NDArray[np.intp], vectors: NDArray[np.float64]) -> Answers | None:
    if answers is None or not answers.outputs.has(TEXT):
        return answers
    column = np.full((len(answers.fate), vectors.shape[1]), np.nan, dtype=np.float32)
    column[rows] = vectors
    return replace(answers, outputs=answers.outputs.with_columns({VECTORS: column}))
