"""Vectors of texts, by an embedding model of this machine."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError

from .answers import Asker
from .questions import MODEL

VECTOR = "outputs.embedding"


class TextEmbedder:
    """Embedding model that is asked about texts, each once in a call.

    Parameters
    ----------
    asker
        Who is asked; it answers an ``embedding`` to a ``text``.
    """

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Vector of each text, shape (n, d), NaN without one.

        Raises
        ------
        ConfigError
            If the model answers no vectors.
        """
        single = list(dict.fromkeys(texts))
        columns = {"id": [str(at) for at in range(len(single))], "inputs.text": pa.array(single, pa.string())}
        answers = self._asker.ask(Batch.from_columns(columns, model=MODEL, rows=len(single)))
        if not answers.is_answered.any():
            raise ConfigError(f"--embed: {self._asker.name} embeds no text: {answers.why[0]}")
        if not answers.outputs.has(VECTOR):
            there = ", ".join(name for name in answers.outputs.names if name.startswith("outputs."))
            raise ConfigError(f"--embed: {self._asker.name} answers {there or 'nothing'}; {VECTOR} expected")
        found = np.array(answers.outputs.tensor(VECTOR, null=np.nan), dtype=np.float64)
        found = found.reshape(len(single), -1)
        found[~answers.is_answered] = np.nan
        place = {text: at for at, text in enumerate(single)}
        return found[[place[text] for text in texts]]

    def close(self) -> None:
        """End the model's process."""
        self._asker.close()
