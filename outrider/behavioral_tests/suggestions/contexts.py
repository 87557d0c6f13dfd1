"""Contexts for a masked language model: filled texts with ``{mask}``."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.behavioral_tests.templates import template
from outrider.behavioral_tests.templates.masks import MASK, masked_texts

_WITH_ARTICLE = re.compile(r"\{[aA]:mask\}")


def contexts(
    pattern: Any, mask_token: str, choices: Mapping[str, Any], *, rows: int, seed: int = 0
) -> tuple[list[str], int]:
    """Texts with ``mask_token`` for ``{mask}``, and masks per text.

    ``{a:mask}`` becomes both "a" and "an": the model, not the article, decides.

    Raises
    ------
    ValueError
        If the pattern has no ``{mask}``, or its texts have different numbers of them.

    Examples
    --------
    >>> contexts("This is {a:mask} {thing}.", "[MASK]", {"thing": ["film"]}, rows=10)
    (['This is a [MASK] film.', 'This is an [MASK] film.'], 1)
    """
    texts = masked_texts(pattern)
    counts = {len(MASK.findall(text)) for text in texts}
    if len(counts) != 1:
        raise ValueError(
            f"a text with {{mask}} expected, or several with as many of them each, got {pattern!r}"
        )
    found = [each for text in texts for each in _filled(text, mask_token, choices, rows, seed)]
    return list(dict.fromkeys(found)), counts.pop()


def _filled(text: str, mask_token: str, choices: Mapping[str, Any], rows: int, seed: int) -> Sequence[str]:
    article = "article_of_mask"
    shown = _WITH_ARTICLE.sub(f"{{{article}}} {{mask}}", text)
    given = {**choices, "mask": [mask_token], article: ["a", "an"]}
    return template(shown, **given).sample(rows, seed=seed).values
