"""Properties of generated texts: refusal, language, length, structure, tool calls.

Sampled texts are never equal, but their properties often are. So each property is compared like a class, and
a model's noise is subtracted per property.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.texts.words import words

from .differences import UNKNOWN, Ruler, property_column, text_column_of
from .items import json_of

Strings = NDArray[np.object_]

TOOL_CALLS = "outputs.tool_calls"
"""Column with the tool calls of an answer, in the JSON form of OpenAI-compatible endpoints."""
REFUSALS = re.compile(
    r"(?:es )?tut mir leid|ich (?:kann|darf|werde) (?:\w+ ){0,4}?(?:nicht|keine)\b"
    r"|leider (?:kann|darf) ich|als (?:ki|sprachmodell)"
    r"|(?:je suis )?désolé|je (?:ne peux|ne suis pas en mesure)|je regrette|en tant qu['e ]*(?:ia|modèle)"
    r"|lo siento|no puedo (?:\w+ ){0,2}?(?:ayudar|proporcionar|dar|ofrecer|hacer|responder|compartir)"
    r"|como (?:modelo de lenguaje|ia\b)"
    r"|mi dispiace|non posso (?:\w+ ){0,2}?(?:aiutar|fornir|dar|offrir|far|risponder)"
    r"|come modello linguistico"
    r"|het spijt me|ik kan (?:\w+ ){0,3}?(?:niet|geen)\b|sinto muito"
    r"|não posso (?:\w+ ){0,2}?(?:ajudar|fornecer|dar|oferecer|responder|fazer)"
    r"|抱歉|对不起|對不起|很遗憾|很遺憾"
    r"|我.{0,3}(?:无法|無法|不能).{0,6}(?:提供|协助|協助|帮|幫|回答|满足|滿足|完成|讨论|討論)"
    r"|作(?:为|為)(?:一(?:个|個|名))?(?:AI|人工智能|人工智慧|语言模型|語言模型)"
    r"|申し訳(?:ございません|ありません|ない)"
    r"|(?:答え|手伝い|提供|対応|回答)(?:することは|は)?(?:でき(?:ません|ない|かね)|いたしかね)"
    r"|ขออภัย|ขอโทษ|ไม่สามารถ(?:ช่วย|ให้|ตอบ|ทำ)"
    r"|죄송|(?:도와드릴|제공할|답변(?:드릴|할)) 수 없",
    re.IGNORECASE,
)
_FEW = 200
"""Number of leading letters in which refusal phrases are searched, in languages other than English."""
_LIST = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)


def with_text_properties(answer: Batch, ruler: Ruler) -> Batch:
    r"""Answers with one more column per property of texts and tool calls.

    Answers without texts or tool calls are returned unchanged. A missing text counts as empty.

    Examples
    --------
    >>> answers = ["Sorry, but I can't assist with that.", "- Oats and barley\n- A litre of milk"]
    >>> batch = Batch.from_columns({"outputs.text": answers}, model="m", rows=2)
    >>> found = with_text_properties(batch, Ruler("text", is_text=True))
    >>> found.column("outputs.text_refusal").tolist(), found.column("outputs.text_structure").tolist()
    (['refused', 'answered'], ['none', 'list'])
    """
    columns: dict[str, Any] = {}
    field = text_column_of(answer, ruler)
    if field:
        texts = _filled(answer, field)
        columns[property_column("refusal")] = refusals(texts)
        columns[property_column("language")] = languages(texts)
        columns[property_column("length")] = log_lengths(texts)
        columns[property_column("structure")] = np.array([structure(text) for text in texts], dtype=object)
    if answer.has(TOOL_CALLS):
        calls = [tool_calls(text) for text in _filled(answer, TOOL_CALLS)]
        columns[property_column("tools")] = _objects(json.dumps([name for name, _ in each]) for each in calls)
        columns[property_column("arguments")] = _objects(json.dumps(each) for each in calls)
    return answer.with_columns(columns) if columns else answer


def refusals(texts: Sequence[str]) -> Strings:
    """``refused`` or ``answered`` for each text.

    English is judged by the model of :mod:`~outrider.assertions.library.refusals`; German, French, Spanish,
    Italian, Dutch, Portuguese, Chinese, Japanese, Korean and Thai by phrases near the beginning. An empty
    text is ``empty``.
    """
    from outrider.assertions.library.refusals import KINDS, refusal_probabilities

    english = refusal_probabilities(texts).argmax(axis=1) != KINDS.index("complied")
    other = np.array([bool(REFUSALS.search(text[:_FEW])) for text in texts], dtype=np.bool_)
    empty = np.array([not text.strip() for text in texts], dtype=np.bool_)
    return np.where(empty, "empty", np.where(english | other, "refused", "answered")).astype(object)


def languages(texts: Sequence[str]) -> Strings:
    """Language of each text; ``unknown`` if evidence is weak.

    By script and small words: see :func:`~outrider.assertions.library.languages.detect_language`.
    """
    from outrider.assertions.library.languages import detect_language

    return _objects(found or UNKNOWN for found in detect_language(texts))


def log_lengths(texts: Sequence[str]) -> NDArray[np.float64]:
    """Binary logarithm of (number of words + 8) of each text.

    The 8 makes a few words matter little in short texts.
    """
    return np.log2([8.0 + len(words(text)) for text in texts]) if len(texts) else np.zeros(0)


def structure(text: str) -> str:
    r"""Form of a text: ``json`` with its keys, ``code``, ``list`` or ``none``.

    Examples
    --------
    >>> structure('{"b": 1, "a": 2}'), structure("1. one\n2. two"), structure("[1, 2]"), structure("Hello.")
    ('json object: a, b', 'list', 'json array', 'none')
    """
    value = json_of(text)
    if isinstance(value, dict):
        return f"json object: {', '.join(sorted(value))}"
    if isinstance(value, list):
        return "json array"
    if "```" in text:
        return "code"
    return "list" if len(_LIST.findall(text)) > 1 else "none"


def tool_calls(text: str) -> tuple[tuple[str, str], ...]:
    r"""Name and canonical arguments of each tool call, sorted.

    Arguments that are not JSON stay unchanged; input that is not a list of calls is one call without a name.

    Examples
    --------
    >>> tool_calls('[{"function": {"name": "find", "arguments": "{\\"b\\": 1, \\"a\\": 2.0}"}}]')
    (('find', '{"a": 2.0, "b": 1}'),)
    >>> tool_calls(""), tool_calls("null")
    ((), ())
    """
    try:
        calls = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError):
        return (("", text),)
    if not isinstance(calls, list):
        return () if calls is None else (("", _canonical(calls)),)
    return tuple(sorted(map(_call, calls)))


def _call(call: Any) -> tuple[str, str]:
    of = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(of, dict):
        return "", _canonical(call)
    return str(of.get("name", "")), _canonical(of.get("arguments", ""))


def _canonical(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _filled(answer: Batch, column: str) -> list[str]:
    return ["" if value is None else str(value) for value in answer.arrow(column).to_pylist()]


def _objects(values: Any) -> Strings:
    return np.array(list(values), dtype=object)
