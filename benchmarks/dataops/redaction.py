"""Redaction of real tweets, against a plain loop of ``re`` over every text and kind.

The floor is one pass of the expression that sieves the column: what no text can be spared.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.dataops.redaction.columns import redacted_column
from outrider.dataops.redaction.kinds import Kind
from outrider.dataops.redaction.texts import TextRedactor, hint_of

PAIRS = 7
KEY = b"k" * 32
KINDS: tuple[Kind, ...] = ("email", "phone", "card", "iban", "token")
LEAST = 5.0
"""Times as fast as the loop."""


def plain_loop(texts: list[str | None]) -> list[str | None]:
    """Every kind in every text, one by one."""
    redactor = TextRedactor(KEY)
    return [None if text is None else redactor.text(text, KINDS) for text in texts]


def timed(run: Callable[[], object]) -> float:
    """Seconds of the process."""
    began = time.process_time()
    run()
    return time.process_time() - began


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
    sieve = min(timed(lambda: pc.match_substring_regex(texts, hint_of(KINDS))) for _ in range(PAIRS))
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


if __name__ == "__main__":
    main()
