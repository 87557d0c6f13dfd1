"""Redaction of real tweets, against a plain loop of ``re`` over every text and kind, and how often it errs.

The floor is the sieve of the column: what no text can be spared. ``.found``: cards,
IBANs, phone numbers, addresses and keys planted into the tweets, in any separators, encoding and nesting.
``.changed``: real texts that are changed at all; ``.numbers``: random numbers of 16 digits taken for a card;
``.tables``: lines of numbers of four digits that are changed.
"""

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.dataops.redaction.columns import redacted_column
from outrider.dataops.redaction.kinds import Kind
from outrider.dataops.redaction.sieve import rows_with_hints
from outrider.dataops.redaction.texts import TextRedactor
from tests.dataops import test_redaction_readings as forms
from tests.dataops.test_redaction import CARDS, EMAILS, IBANS, PHONES

PAIRS = 7
KEY = b"k" * 32
KINDS: tuple[Kind, ...] = ("email", "phone", "card", "iban", "token")
LEAST = 5.0
"""Times as fast as the loop."""
TEXTS = {
    "airline_tweets": [("tweets", "text")],
    "clinc150": [("data_full", "text")],
    "halueval_general": [("general", "user_query"), ("general", "chatgpt_response")],
    "xstest_refusals": [("completions", "completion")],
}


def plain_loop(texts: list[str | None]) -> list[str | None]:
    """Every kind in every text, one by one."""
    redactor = TextRedactor(KEY)
    return [None if text is None else redactor.text(text, KINDS) for text in texts]


def timed(run: Callable[[], object]) -> float:
    """Seconds of the process."""
    began = time.process_time()
    run()
    return time.process_time() - began


def real_texts() -> list[str]:
    """Texts of people, requests and answers."""
    listed: list[str] = []
    for data, columns in TEXTS.items():
        for file, column in columns:
            table = pq.read_table(data_folder(data) / f"{file}.parquet", columns=[column])
            listed += [text for text in table[column].to_pylist() if text]
    return listed


def planted(texts: list[str], draw: random.Random) -> list[tuple[str, str]]:
    """Values and texts that hold them."""
    made = []
    for text in texts:
        value = draw.choice(
            [
                forms.printed(draw.choice(CARDS), draw.choice(forms.SEPARATORS)),
                forms.by_fours(draw.choice(IBANS), draw.choice(forms.SEPARATORS)),
                draw.choice(PHONES[:3]).replace(" ", draw.choice(forms.PHONE_SEPARATORS)),
                draw.choice([*EMAILS, *forms.SECRETS]),
            ]
        )
        said, is_json = draw.choice(forms.TEXT_ENCODINGS), draw.random() < 0.5
        if is_json:
            said = draw.choice(forms.JSON_ENCODINGS)
            whole = json.dumps({"said": text})[:-1] + f', "a": "{said(value)}", "a": "x"}}'
        else:
            whole = f"{text} {said(value)} {text[:20]}"
        for outer in draw.sample(forms.JSON, draw.randrange(3)):
            whole = outer(whole, forms.json_escaped)
        made.append((value, whole))
    return made


def tables(draw: random.Random) -> list[str]:
    """Lines of tables that look most like cards in groups."""
    return [
        draw.choice(",;:|").join(str(draw.randrange(1000, 10_000)) for _ in range(draw.randrange(3, 12)))
        for _ in range(100_000)
    ]


def errors() -> None:
    """Print the figures of what is missed and what is changed without need."""
    texts = real_texts()
    name, data = "dataops.redaction", f"{', '.join(TEXTS)}: {len(texts):,} texts"
    counts: Counter[Kind] = Counter()
    column = pa.array(texts)
    changed = pc.sum(pc.not_equal(column, redacted_column(column, KINDS, KEY, counts))).as_py()
    Figure.of_share(f"{name}.changed", changed, len(texts), "of texts", data=data).show()
    Figure.of_share(f"{name}.cards", counts["card"], len(texts), "of texts", data=data).show()
    held = planted(texts[::5], random.Random(1))
    left = redacted_column(pa.array([text for _, text in held]), KINDS, KEY, Counter()).to_pylist()
    found = sum(not forms.holds(text, value) for (value, _), text in zip(held, left, strict=True))
    Figure.of_share(f"{name}.found", found, len(held), "of planted values", data=f"{data}, seed 1").show()
    rows = pa.array(tables(random.Random(1)))
    changed = pc.sum(pc.not_equal(rows, redacted_column(rows, KINDS, KEY, Counter()))).as_py()
    data = "lines of 3 to 11 random numbers of four digits, a mark between them, seed 1"
    Figure.of_share(f"{name}.tables", changed, len(rows), "of lines", data=data).show()
    numbers = pa.array(np.random.default_rng(1).integers(10**15, 10**16, 100_000))
    nulls = redacted_column(numbers, ["card"], KEY, Counter()).null_count
    Figure.of_share(
        f"{name}.numbers", nulls, len(numbers), "of numbers", data="random, 16 digits, seed 1"
    ).show()


def main() -> None:
    """Print the figures."""
    texts = (
        pq.read_table(data_folder("airline_tweets") / "tweets.parquet")["text"]
        .combine_chunks()
        .cast(pa.string())
    )
    listed, rows = texts.to_pylist(), len(texts)
    assert redacted_column(texts, KINDS, KEY, Counter()).equals(pa.array(plain_loop(listed)))
    pairs = [
        (timed(lambda: redacted_column(texts, KINDS, KEY, Counter())), timed(lambda: plain_loop(listed)))
        for _ in range(PAIRS)
    ]
    sieve = min(timed(lambda: rows_with_hints(texts, KINDS)) for _ in range(PAIRS))
    ours, loop = (statistics.median(side) / rows * 1e6 for side in zip(*pairs, strict=True))
    data = f"airline_tweets, {rows:,} texts"
    faster = [slow / fast for fast, slow in pairs]
    name, said = "dataops.redaction", f"{loop:.4g} µs of the loop"
    Figure.of_pairs(f"{name}.text", ours, "µs", said, faster, LEAST, data=data).show()
    Figure(
        f"{name}.sieve",
        sieve / rows * 1e6,
        "µs",
        f"{ours:.4g} µs in all",
        ours / sieve * rows / 1e6,
        data=data,
    ).show()
    errors()


if __name__ == "__main__":
    main()
