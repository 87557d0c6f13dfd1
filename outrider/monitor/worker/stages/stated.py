from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.comparison.typed_text import text_of
from outrider.dataops.ledger.class_words import NUMBER, class_word
from outrider.dataops.ledger.stated_values import ANSWER, OTHERS, SLICE, VERSION, StatedValues
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.worker.judged import JudgedRecords

from .groups import stored_groups

Texts = list[str | None]


@dataclass(frozen=True, slots=True)
class CountedValues:
    """Columns of records as counts name them.

    Attributes
    ----------
    versions
        Judged version; ``stated`` is what the record says it was.
    is_unnamed, is_other_class
        True where the judged version, or the answer, is counted under ``OTHERS``; None for no.
    """

    versions: Texts
    stated: Texts
    slices: Texts
    groups: Texts
    predicted: Texts
    is_unnamed: list[bool | None]
    is_other_class: list[bool | None]

    @classmethod
    def of(
        cls,
        stated: StatedValues,
        judged: JudgedRecords,
        versions: Sequence[str | None],
        minutes_us: NDArray[np.int64],
        settings: ModelSettings,
    ) -> "CountedValues":
        """Apply a model's name books to new records, in order."""
        batch = judged.batch
        told = text_of(batch, "version")
        is_named = stated.meet(VERSION, told, minutes_us)
        # What a replica answered is judged as its version, whatever production said.
        unnamed = [
            True if not named and one == version else None
            for named, one, version in zip(is_named.tolist(), told, versions, strict=True)
        ]
        slices: Texts = [None] * batch.rows
        if settings.slice_by:
            own = text_of(batch, f"attrs.{settings.slice_by}")
            slices = _folded(own, stated.meet(SLICE, own, minutes_us))
        predicted = judged.texts(f"outputs.{settings.target}")
        return cls(
            versions=[OTHERS if one else own for one, own in zip(unnamed, versions, strict=True)],
            stated=_folded(told, is_named),
            slices=slices,
            groups=stored_groups(batch, settings.group_by, stated, minutes_us),
            predicted=predicted,
            is_unnamed=unnamed,
            is_other_class=other_classes(stated, ANSWER, predicted, minutes_us),
        )


def other_classes(
    stated: StatedValues, dimension: str, texts: Sequence[str | None], minutes_us: NDArray[np.int64]
) -> list[bool | None]:
    words = {text: class_word(text) for text in dict.fromkeys(texts) if text is not None}
    words = {text: word for text, word in words.items() if word != NUMBER}
    if not words:
        return [None] * len(texts)
    named = stated.meet(dimension, [words.get(text) if text else None for text in texts], minutes_us)
    return [None if one else True for one in named.tolist()]


def _folded(texts: Sequence[str | None], named: NDArray[np.bool_]) -> Texts:
    if named.all():
        return list(texts)
    return [text if one else OTHERS for text, one in zip(texts, named.tolist(), strict=True)]
