"""Readers of a Hugging Face model's answers, one class per task.

``auto`` is the head that transformers loads. Answers may be padded with zeros to join batches.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError

from .class_outputs import classes_array
from .runner import EncodedRows, Tensors
from .texts import TextEncoder, texts_of
from .torch_models import read_logits

FED = ("input_ids", "attention_mask", "token_type_ids")
PLACES = ("starts", "ends", "words")


class TaskReader(Protocol):
    auto: str

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows: ...

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]: ...

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]: ...


def fed(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: tensors[name] for name in FED if name in tensors}


class Classification:
    """Texts or pairs to ``label``, ``score``, ``margin`` and ``probs``."""

    auto = "AutoModelForSequenceClassification"

    def __init__(self, classes: Sequence[int | str]) -> None:
        self.classes = classes_array(classes)

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows:
        return encoder.encode(batch)

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]:
        return {"out": module(**fed(tensors)).logits.float()}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return read_logits(answers["out"], self.classes)


class Value(Classification):
    """Output of a head as ``value``, a number for a regression."""

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return {"value": answers["out"].squeeze(-1).numpy()}


class TokenClasses:
    """Spans of a text: ``entities``, ``tags`` of words, and the least ``score``.

    An entity is ``{start, end, label, score}`` in characters; tags ``B-`` and ``I-`` are joined as in
    CoNLL-2003, others if neighbouring words have the same. ``tags`` is one text, a tag per word.
    """

    auto = "AutoModelForTokenClassification"

    def __init__(self, classes: Sequence[int | str]) -> None:
        self.classes = [str(value) for value in classes]

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows:
        return encoder.encode(batch, places=True)

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]:
        """Shape (rows, tokens)."""
        probs = module(**fed(tensors)).logits.float().softmax(-1)  # (rows, tokens, classes)
        score, label = probs.max(-1)
        return {"score": score, "label": label} | {name: tensors[name] for name in PLACES}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        columns = {name: tensor.numpy() for name, tensor in answers.items()}
        rows = len(columns["label"])
        entities, tags = np.empty(rows, dtype=object), np.empty(rows, dtype=object)
        score = np.ones(rows, dtype=np.float32)
        for row in range(rows):
            at = np.flatnonzero(columns["words"][row])
            named = [self.classes[number] for number in columns["label"][row, at]]
            sure = columns["score"][row, at]
            tags[row] = " ".join(named)
            score[row] = sure.min(initial=1.0)
            stops = [*at[1:].tolist(), None][: len(at)]  # special tokens and padding end at 0
            ends = [int(columns["ends"][row, a:z].max()) for a, z in zip(at, stops, strict=True)]
            entities[row] = spans(named, columns["starts"][row, at].tolist(), ends, sure.tolist())
        return {"entities": entities, "tags": tags, "score": score}


def spans(
    tags: Sequence[str], starts: Sequence[int], ends: Sequence[int], scores: Sequence[float]
) -> list[dict[str, Any]]:
    """Entities of words' tags, each scored as its least sure word.

    Examples
    --------
    >>> spans(["B-PER", "I-PER", "O", "B-LOC"], [0, 4, 9, 12], [3, 8, 11, 17], [1.0, 0.5, 1.0, 1.0])
    ... # doctest: +NORMALIZE_WHITESPACE
    [{'start': 0, 'end': 8, 'label': 'PER', 'score': 0.5},
     {'start': 12, 'end': 17, 'label': 'LOC', 'score': 1.0}]
    """
    found: list[dict[str, Any]] = []
    before = "O"
    for tag, start, end, score in zip(tags, starts, ends, scores, strict=True):
        marked = tag[:2] in ("B-", "I-")
        name = tag[2:] if marked else tag
        if tag != "O":
            if found and before == name and tag[:2] != "B-":
                found[-1]["end"] = end
                found[-1]["score"] = min(found[-1]["score"], score)
            else:
                found.append({"start": start, "end": end, "label": name, "score": score})
        before = name
    return found


class Embedding:
    """``embedding``: one vector per text, of unit length if ``normalize``."""

    auto = "AutoModel"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._pooling = options.get("pooling", "mean")
        self._normalize = bool(options.get("normalize", True))
        if self._pooling not in ("mean", "first", "last"):
            raise ConfigError(f"options.pooling: mean, first or last expected, got {self._pooling!r}")

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows:
        return encoder.encode(batch)

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]:
        states = module(**fed(tensors)).last_hidden_state.float()  # (rows, tokens, dimension)
        mask = tensors["attention_mask"]
        if self._pooling == "first":
            pooled = states[:, 0]
        elif self._pooling == "last":
            pooled = states[torch.arange(len(states), device=states.device), mask.sum(1) - 1]
        else:
            weight = mask.unsqueeze(-1).float()
            pooled = (states * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        return {"out": torch.nn.functional.normalize(pooled, dim=-1) if self._normalize else pooled}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return {"embedding": answers["out"].numpy()}


class Scoring:
    """``score``: mean log-probability of a token; ``logprob`` the sum, ``tokens`` the count.

    The first token of a text is not scored; of two fields the second is scored after the first.
    """

    auto = "AutoModelForCausalLM"

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows:
        """``scored`` is 1 at every token that counts."""
        first = encoder.tokenizer(texts_of(batch, encoder.inputs[0]), return_attention_mask=False)[
            "input_ids"
        ]
        most = encoder.max_tokens
        if len(encoder.inputs) == 1:
            ids = [row[:most] for row in first]
            return encoder.rows({"input_ids": ids, "scored": [[0] + [1] * (len(r) - 1) for r in ids]})
        texts = texts_of(batch, encoder.inputs[1])
        answers = encoder.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        ids, scored = [], []
        for prompt, text in zip(first, answers, strict=True):
            kept = text[: most - 1]
            before = prompt[-(most - len(kept)) :]
            ids.append(before + kept)
            scored.append([0] * len(before) + [1] * len(kept))
        return encoder.rows({"input_ids": ids, "scored": scored})

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]:
        # Without a cache: nothing is written on, and what fills a cache cannot be shared on a trunk.
        logits = module(**fed(tensors), use_cache=False).logits[:, :-1]  # each token, of the next one
        ids, scored = tensors["input_ids"][:, 1:], tensors["scored"][:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.float().transpose(1, 2), ids, reduction="none")
        return {"logprob": -(loss * scored).sum(1), "tokens": scored.sum(1)}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        logprob, tokens = answers["logprob"].numpy(), answers["tokens"].numpy()
        return {"score": logprob / np.maximum(tokens, 1), "logprob": logprob, "tokens": tokens}


class Generation:
    """Greedy continuation of a text.

    ``text`` (or ``options.output``), ``tokens``, ``score``: mean log-probability, ``ended``: within
    ``max_new_tokens``.
    """

    auto = "AutoModelForCausalLM"

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._most = int(options.get("max_new_tokens", 32))
        self._output = str(options.get("output", "text"))
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        if self._most < 1 or self._pad is None:
            raise ConfigError(
                f"options.max_new_tokens: at least 1 expected, got {self._most}"
                if self._most < 1
                else "the tokenizer names neither a pad_token nor an eos_token; generation needs one"
            )

    def encode(self, encoder: TextEncoder, batch: Batch, /) -> EncodedRows:
        """Of a long prompt the end is kept."""
        return encoder.encode(batch)

    def run(self, module: Any, tensors: Tensors, /) -> dict[str, torch.Tensor]:
        """Tokens of shape (rows, most), and log-probabilities."""
        ids, mask = _to_the_right(tensors["input_ids"], tensors["attention_mask"])
        written = Greedy()
        config = _greedy(module.generation_config, most=self._most, pad=self._pad)
        found = module.generate(
            input_ids=ids, attention_mask=mask, generation_config=config, logits_processor=[written]
        )[:, ids.shape[1] :]
        logprob = torch.stack(written.logprob, 1)  # (rows, steps)
        ends = torch.as_tensor(_list(config.eos_token_id), device=found.device, dtype=found.dtype)
        ended = torch.isin(found, ends)
        counts = torch.where(ended.any(1), ended.int().argmax(1) + 1, found.shape[1])
        is_written = torch.arange(found.shape[1], device=found.device) < counts[:, None]
        room = (0, self._most - found.shape[1])
        return {
            "ids": torch.nn.functional.pad(found.where(is_written, self._pad), room, value=self._pad),
            "logprob": (logprob * is_written).sum(1),
            "tokens": counts,
            "ended": ended.any(1),
        }

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        tokens = answers["tokens"].numpy()
        ids = [row[:count] for row, count in zip(answers["ids"].tolist(), tokens.tolist(), strict=True)]
        texts = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
        return {
            self._output: np.array(texts, dtype=object),
            "tokens": tokens,
            "score": answers["logprob"].numpy() / np.maximum(tokens, 1),
            "ended": answers["ended"].numpy(),
        }


class Greedy:
    """Records the probability of each step's likeliest token."""

    def __init__(self) -> None:
        self.logprob: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        logits = scores.float()
        self.logprob.append(logits.amax(-1) - logits.logsumexp(-1))
        return scores


def _greedy(given: Any, *, most: int, pad: int) -> Any:
    """The model's own settings, with the likeliest token at every step."""
    from transformers import GenerationConfig

    kept = {
        name: value
        for name, value in given.to_diff_dict().items()
        if name
        in ("eos_token_id", "bos_token_id", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids")
    }
    return GenerationConfig(  # type: ignore[no-untyped-call]  # it has no annotations
        **kept, max_new_tokens=most, pad_token_id=pad, do_sample=False, num_beams=1
    )


def _to_the_right(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Padding moves to the left, so that new tokens follow the last one."""
    width = ids.shape[1]
    shift = width - mask.sum(1, keepdim=True)
    at = (torch.arange(width, device=ids.device) - shift) % width
    return ids.gather(1, at), mask.gather(1, at)


def _list(value: int | Sequence[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
