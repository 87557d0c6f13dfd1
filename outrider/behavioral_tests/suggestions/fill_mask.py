"""Words that a masked language model expects in a context.

Needs the extra ``hf`` (transformers).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.templates import template
from outrider.behavioral_tests.templates.masks import MASK, masked_texts
from outrider.parts import install_command

Floats = NDArray[np.float64]
_BEAM = 20
_WITH_ARTICLE = re.compile(r"\{[aA]:mask\}")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Words for the masks of a text, in order, with their score.

    The score is the mean log-probability per word over the contexts.
    """

    words: tuple[str, ...]
    score: float


class FillMask:
    """Masked language model (BERT, RoBERTa, …) of Hugging Face, in batches.

    Parameters
    ----------
    model
        Folder of a saved model, or the id of one on the Hub. Only ``safetensors`` weights are read, never
        pickled ones, and no code that comes with a model is run.
    device
        Torch device, such as ``"cuda"``.
    batch_rows
        Number of texts per forward pass.
    top
        Number of words that :meth:`words` proposes for ``template(…, mask=model)``.

    Raises
    ------
    ModuleNotFoundError
        If transformers is not installed.

    References
    ----------
    Ribeiro et al., "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList", ACL 2020, section 3.2.
    Unlike CheckList's ``Editor.suggest``, scores are log-probabilities, comparable between contexts, and
    pieces of words are never proposed as words.
    """

    def __init__(
        self, model: Path | str, *, device: str = "cpu", batch_rows: int = 64, top: int = 20
    ) -> None:
        transformers = _transformers()
        self.top = top
        self._batch_rows = batch_rows
        self._device = device
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(str(model))
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(str(model), use_safetensors=True)
        self._model = loaded.to(device).eval()
        if self._tokenizer.mask_token is None:
            raise ValueError(f"{model} has no mask token; a masked language model such as BERT is expected")

    def suggest(
        self, pattern: Any, /, *, top: int = 10, contexts_of: int = 20, seed: int = 0, **choices: Any
    ) -> tuple[Suggestion, ...]:
        """Words for ``{mask}`` that fit all contexts best, with scores.

        Parameters
        ----------
        pattern
            As for :func:`template`, with at least one ``{mask}``; several in a text are filled from left to
            right by beam search.
        contexts_of
            Number of filled versions of each text that are scored.
        **choices
            Values of the other slots, as for :func:`template`.
        """
        texts, masks = contexts(pattern, self._mask, choices, rows=contexts_of, seed=seed)
        beam: list[Suggestion] = [Suggestion((), 0.0)]
        for _ in range(masks):
            beam = self._extended(texts, beam, max(top, _BEAM))
        return tuple(Suggestion(each.words, each.score / masks) for each in beam[:top])

    def words(self, pattern: Any, choices: Mapping[str, Any]) -> tuple[Any, ...]:
        """Words for ``template(pattern, mask=self)``; tuples for several masks."""
        found = self.suggest(pattern, top=self.top, **choices)
        return tuple(each.words[0] if len(each.words) == 1 else each.words for each in found)

    def replacements(self, texts: Sequence[str], word: str, *, top: int = 10) -> tuple[Suggestion, ...]:
        """Words that could replace ``word`` in all of ``texts``."""
        braced = [text.replace("{", "{{").replace("}", "}}") for text in texts]
        options = self.suggest(_replaced(braced, word, "{mask}"), top=top + 1)
        return tuple(each for each in options if each.words[0].lower() != word.lower())[:top]

    def fitting(
        self, texts: Sequence[str], word: str, options: Sequence[str], *, threshold: float = 5.0
    ) -> tuple[str, ...]:
        """Options that fit ``texts`` almost as well as ``word``, best first.

        Options come from a :class:`WordNet`, for example. An option is kept if its mean log-probability per
        word piece is at most ``threshold`` below that of ``word``.
        """
        candidates = list(dict.fromkeys([word, *options]))
        scores = self._scores(_replaced(texts, word, self._mask), candidates)
        order = np.argsort(-scores, kind="stable")
        return tuple(candidates[at] for at in order if at != 0 and scores[0] - scores[at] <= threshold)

    # ---- inside ----------------------------------------------------------------------------------------

    @property
    def _mask(self) -> str:
        token: str = self._tokenizer.mask_token
        return token

    @cached_property
    def _vocabulary(self) -> dict[int, str]:
        """Word by token id, for tokens that start a word and consist of letters only."""
        tokens: dict[str, int] = self._tokenizer.get_vocab()
        starts = next((mark for mark in ("Ġ", "▁") if any(token.startswith(mark) for token in tokens)), "")
        special = set(self._tokenizer.all_special_ids)
        words: dict[int, str] = {}
        for token, number in tokens.items():
            if number in special or not token.startswith(starts) or token.startswith("##"):
                continue
            word = self._tokenizer.decode([number]).strip() if starts == "Ġ" else token.removeprefix(starts)
            if word.replace("-", "").replace("'", "").isalpha():
                words[number] = word
        return words

    def _extended(self, texts: list[str], beam: list[Suggestion], top: int) -> list[Suggestion]:
        """Best extensions of each suggestion by one word."""
        rows = [_with_words(text, each.words, self._mask) for each in beam for text in texts]
        numbers = np.array(sorted(self._vocabulary))
        first = self._log_probabilities(rows, masks=1)[:, 0, numbers]  # (suggestions x texts, words)
        scores = first.reshape(len(beam), len(texts), -1).mean(axis=1, dtype=np.float64)
        total = scores + np.array([each.score for each in beam])[:, None]
        best = np.argsort(-total, axis=None, kind="stable")[:top]
        return [
            Suggestion((*beam[row].words, self._vocabulary[int(numbers[column])]), float(total[row, column]))
            for row, column in zip(*np.unravel_index(best, total.shape), strict=True)
        ]

    def _scores(self, texts: list[str], words: list[str]) -> Floats:
        """Mean log-probability of each word's pieces over all texts; one pass per number of pieces."""
        pieces = [self._tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in words]
        scores = np.full(len(words), -np.inf)
        for size in sorted({len(each) for each in pieces} - {0}):
            rows = [text.replace(self._mask, self._mask * size) for text in texts]
            found = self._log_probabilities(rows, masks=size)
            for at, each in enumerate(pieces):
                if len(each) == size:
                    scores[at] = found[:, np.arange(size), each].mean(dtype=np.float64)
        return scores

    def _log_probabilities(self, texts: list[str], *, masks: int) -> NDArray[np.float32]:
        """Log-probabilities at the first ``masks`` masks of each text, shape (texts, masks, vocabulary)."""
        import torch

        parts: list[NDArray[np.float32]] = []
        for start in range(0, len(texts), self._batch_rows):
            block = texts[start : start + self._batch_rows]
            encoded = self._tokenizer(block, return_tensors="pt", padding=True).to(self._device)
            with torch.inference_mode():
                logits = self._model(**encoded).logits  # (B, T, V)
            at_mask = encoded["input_ids"] == self._tokenizer.mask_token_id
            chosen = logits[at_mask & (at_mask.cumsum(dim=1) <= masks)].float()  # (B x masks, V)
            parts.append(torch.log_softmax(chosen, dim=-1).reshape(len(block), masks, -1).cpu().numpy())
        return np.concatenate(parts)


def _with_words(text: str, words: tuple[str, ...], mask: str) -> str:
    for word in words:
        text = text.replace(mask, word, 1)
    return text


def _replaced(texts: Sequence[str], word: str, by: str) -> list[str]:
    """Texts with the first ``word`` of each replaced."""
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    missing = [text for text in texts if not whole.search(text)]
    if missing:
        raise ValueError(f"{word!r} must stand in every text; it does not in {missing[0]!r}")
    return [whole.sub(lambda _: by, text, count=1) for text in texts]


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"masked-language-model suggestions need transformers: {install_command(['hf'])}"
        ) from error
    return transformers


def contexts(
    pattern: Any, mask_token: str, choices: Mapping[str, Any], *, rows: int, seed: int = 0
) -> tuple[list[str], int]:
    """Texts with ``mask_token`` for ``{mask}``, and the number of masks per text.

    ``{a:mask}`` becomes both "a" and "an", so that the article does not restrict the word.

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
