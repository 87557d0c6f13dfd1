"""Groundedness of an answer in its passages.

A logistic model on word features, in numpy only.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .texts import text_column

Floats = NDArray[np.float64]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+")
FUNCTION_WORDS = _set(
    "a an the this that these those some any each every all both no such of in on at by for with from to "
    "into onto "
    "over under about as than then between among through during before after since until within without "
    "against and "
    "or but nor so if because while although though when where which who whom whose what how why is are "
    "was were be "
    "been being am has have had having do does did done will would can could may might must shall should "
    "he she it "
    "they we i you him her them us me his its their our your my hers theirs ours yours mine itself "
    "himself herself "
    "themselves not also there here very more most much many other only just too up out off down own "
    "same again"
)
NEGATIONS = _set("no not never none nothing nobody neither nor nowhere hardly cannot without")
FIRST_PERSON = _set("i me my mine myself we us our ours ourselves im")
SECOND_PERSON = _set("you your yours yourself")
HEDGES = _set(
    "think believe guess maybe perhaps probably sure wonder suppose seems seem imagine bet know heard "
    "hear agree hope "
    "wish feel remember idea"
)
OPINIONS = _set(
    "love like enjoy favorite favourite great cool awesome nice amazing interesting fun wow good best "
    "beautiful lol "
    "haha oh yes yeah yep yea nope well hi hello hey thanks thank sorry really definitely absolutely "
    "right true "
    "pretty glad hate prefer"
)
ENDINGS = (
    *(("ational", "ate"), ("ization", "ize"), ("fulness", "ful"), ("iveness", "ive"), ("ically", "ic")),
    *(("ments", "ment"), ("ingly", ""), ("edly", ""), ("ies", "y"), ("ied", "y"), ("ing", ""), ("ers", "er")),
    *(("est", ""), ("ed", ""), ("es", ""), ("ly", ""), ("s", "")),
)
FEATURES = (
    "words_found",  # share of the answer's words that occur in the passages
    "stems_found",  # the same without endings
    "content_found",  # of words that carry content
    "content_letters_found",  # weighted by length: long words are rare words
    "bigrams_found",
    "trigrams_found",
    "new_content",  # log(1 + content words that the passages do not have)
    "new_function_words",
    "longest_gap",  # log(1 + longest run of words that the passages do not have)
    "new_numbers",
    "new_negation",
    "new_first_person",
    "new_second_person",
    "hedges",
    "opinions",
    "question",
    "log_words",
    "log_words_per_passage_word",
)


def words(text: str) -> list[str]:
    """Words and numbers in lower case.

    "don't" and "do n't" both give do, not.
    """
    text = text.lower().replace("\u2019", "'").replace(" n't", " not").replace("n't", " not")
    return WORD.findall(text)


def stem(word: str) -> str:
    """Word without its English ending. Approximate: two forms of a word should give the same stem."""
    if len(word) < 4 or word[0].isdigit():
        return word
    for ending, replacement in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(replacement) >= 3:
            word = word[: len(word) - len(ending)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    if len(word) > 3 and word[-1] == "e":
        word = word[:-1]
    return f"{word[:-1]}i" if len(word) > 3 and word[-1] == "y" else word


def features(passage: str, answer: str) -> list[float]:
    """Values of ``FEATURES`` for an answer and its source text."""
    source, target = words(passage), words(answer)
    source_stems, stems = [stem(word) for word in source], [stem(word) for word in target]
    known, known_stems = set(source), set(source_stems)
    content = [s for s, word in zip(stems, target, strict=True) if word not in FUNCTION_WORDS]
    function = [word for word in target if word in FUNCTION_WORDS]
    new = [word for word in target if word not in known]
    letters = sum(map(len, content))
    return [
        _share(target, known),
        _share(stems, known_stems),
        _share(content, known_stems, empty=1.0),
        sum(len(s) for s in content if s in known_stems) / letters if letters else 1.0,
        _share(_grams(stems, 2), set(_grams(source_stems, 2))),
        _share(_grams(stems, 3), set(_grams(source_stems, 3))),
        math.log1p(sum(s not in known_stems for s in content)),
        math.log1p(sum(word not in known for word in function)),
        math.log1p(_longest_gap(stems, known_stems)),
        float(sum(word[0].isdigit() for word in new)),
        float(_count(target, NEGATIONS) > _count(source, NEGATIONS)),
        float(_count(new, FIRST_PERSON) > 0),
        float(_count(new, SECOND_PERSON) > 0),
        math.log1p(_count(new, HEDGES)),
        math.log1p(_count(new, OPINIONS)),
        float("?" in answer),
        math.log(max(1, len(target))),
        math.log(max(1, len(target)) / max(1, len(source))),
    ]


def _share(items: Sequence[object], known: set[object] | set[str], empty: float = 0.0) -> float:
    return sum(item in known for item in items) / len(items) if items else empty


def _count(items: Sequence[str], of: frozenset[str]) -> int:
    return sum(item in of for item in items)


def _grams(items: Sequence[str], size: int) -> list[object]:
    return list(zip(*(items[start:] for start in range(size)), strict=False))


def _longest_gap(items: Sequence[str], known: set[str]) -> int:
    longest = run = 0
    for item in items:
        run = 0 if item in known else run + 1
        longest = max(longest, run)
    return longest


@dataclass(frozen=True, slots=True)
class Weights:
    """Fitted logistic model.

    Features are clipped to the range of the fit.

    Attributes
    ----------
    low, high
        Smallest and largest value in the training data, shape (features,).
    weight
        Coefficient of each feature, shape (features,).
    bias
        Log odds of "fully attributable" if all features are zero.
    """

    low: Floats
    high: Floats
    weight: Floats
    bias: float

    @classmethod
    def shipped(cls) -> "Weights":
        """Weights that ship with the package. Fitted by ``python -m benchmarks.assertions.llm --fit``."""
        text = files(__package__).joinpath("weights/groundedness.json").read_text(encoding="utf-8")
        stored = json.loads(text)
        if tuple(stored["features"]) != FEATURES:
            raise ValueError("weights/groundedness.json belongs to other features; fit it again")
        low, high, weight = (np.array(stored[name]) for name in ("low", "high", "weight"))
        return cls(low, high, weight, float(stored["bias"]))

    def probability(self, X: Floats) -> Floats:
        """Probability of "fully attributable", shape (rows,).

        ``X`` holds features, shape (rows, features).
        """
        # Summed row by row and rounded: independent of the other rows.
        logit = (np.clip(X, self.low, self.high) * self.weight).sum(axis=1) + self.bias
        probability: Floats = np.round(1.0 / (1.0 + np.exp(-logit)), 9)
        return probability


def groundedness(
    passages: Sequence[str], answers: Sequence[str], *, weights: Weights | None = None
) -> Floats:
    """Probability that each answer is fully attributable to its passage.

    Shape (rows,), in (0, 1).

    Examples
    --------
    >>> passage = "Crayola shifted its focus to art products for home and school use."
    >>> answers = ["crayola shifted its focus to art products", "I love crayons! My brother has 200 of them."]
    >>> groundedness([passage, passage], answers).round(1).tolist()
    [1.0, 0.0]
    """
    weights = weights or Weights.shipped()
    if not len(answers):
        return np.zeros(0)
    pairs = zip(passages, answers, strict=True)
    return weights.probability(np.array([features(passage, answer) for passage, answer in pairs]))


def ungrounded(
    *,
    answer: str = "outputs.answer",
    passages: str = "inputs.passages",
    below: float = 0.5,
    name: str = "ungrounded",
    level: Level = "warning",
) -> Assertion:
    """Answers unsupported by the retrieved passages.

    Parameters
    ----------
    passages
        Column of texts or of lists of texts.
    below
        The assertion fires if the probability of "fully attributable" is below this, in (0, 1].

    Finds
    -----
    Invented facts, numbers, opinions and small talk in an answer that should be based on given passages. The
    severity is 1 - the probability of "fully attributable", where that is below ``below``. A record without
    passages or without an answer is not judged. Only words are compared: a false statement in the passage's
    own words passes, and a true paraphrase in other words fires. English. For dialogue and short answers: on
    summaries it is little better than chance, because false sentences there are made of the source's words.
    With several passages, or other texts, fit ``below`` on 50 labelled answers: ``outrider assertions
    calibrate ungrounded``.

    Cost
    ----
    About 130 µs per record of 20 words on a passage of 25, in Python; it grows with both lengths.

    Measured
    --------
    On 3,607 dialogue answers of four models with people's verdicts (BEGIN wow_test; fitted on wow_dev alone):
    AUROC 0.952 (0.946 to 0.958), for comparison, the share of words found in the passages 0.936; gain 0.016
    (0.011 to 0.020). At the default 0.92 (0.90 to 0.93) of 2,145 flags are right, and 0.89 (0.87 to 0.90) of
    2,215 ungrounded answers are found. No embedding or judge is used (`python -m benchmarks.assertions.llm`).

    Examples
    --------
    >>> passage = ["You can return an order within 30 days.", "The refund arrives within 5 working days."]
    >>> answers = ["You can return an order within 30 days.", "I think it is 90 days, and shipping is free!"]
    >>> records = [{"inputs": {"passages": passage}, "outputs": {"answer": answer}} for answer in answers]
    >>> ungrounded().severities(Batch.from_records(records, model="helpdesk")).round(1).tolist()
    [0.0, 1.0]

    References
    ----------
    Dziri et al., "Evaluating Attribution in Dialogue Systems: The BEGIN Benchmark", TACL 2022 (the data).
    """
    if not 0 < below <= 1:
        raise ValueError(f"below must lie in (0, 1], got {below}; it is a probability of being grounded")
    fitted = Weights.shipped()
    low, high, weight, bias = fitted.low, fitted.high, fitted.weight, fitted.bias

    @assertion(name=name, level=level, description=f"{answer} says what {passages} does not.")
    def judge(batch: Batch) -> Floats:
        sources = text_column(batch, passages).to_pylist()
        answers = text_column(batch, answer).to_pylist()
        severity = np.zeros(batch.rows)
        rows = [row for row in range(batch.rows) if sources[row].strip() and answers[row].strip()]
        if rows:
            X = np.array([features(sources[row], answers[row]) for row in rows])
            probability = Weights(low, high, weight, bias).probability(X)
            severity[rows] = np.where(probability < below, 1.0 - probability, 0.0)
        return severity

    return judge
