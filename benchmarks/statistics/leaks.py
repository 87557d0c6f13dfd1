"""Leaks planted among real rows: share found, and share of the other rows left alone.

Texts are edited as people do: another case, punctuation and white space, and a word of twelve replaced,
dropped or put in. Of rows that were not planted, one is wrongly matched where its partner has another label,
and in data without labels wherever it has a partner: some of these are true near-duplicates, so the share is
an upper bound.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.dataops.datasets.leaks import LeakSide, find_matches, sides

SEED = 4
LEAST_WORDS = 5


def edited(rng: np.random.Generator, text: str, vocabulary: Sequence[str]) -> str:
    """A text with a word of twelve changed, and another surface."""
    words = text.split()
    for _ in range(1 + len(words) // 12):
        at, kind = int(rng.integers(len(words))), int(rng.integers(3))
        put_in = [vocabulary[int(rng.integers(len(vocabulary)))]] if kind != 1 or len(words) < 3 else []
        words[at : at + (kind != 2)] = put_in
    text = (" " if rng.random() < 0.5 else "\t ").join(words)
    cases = (text, text.upper(), text.title())
    return cases[int(rng.integers(3))] + ("", "!", " ...", "?!")[int(rng.integers(4))]


def matched(left: LeakSide, right: LeakSide) -> dict[int, int]:
    """Partner of each row of the left that has one, whatever the kind of match."""
    found: dict[int, int] = {}
    for match in find_matches(left, right):
        found |= dict(zip(match.pairs.rows.tolist(), match.pairs.others.tolist(), strict=True))
    return found


def texts_of() -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Rows to learn from and to judge by of each data set: ``text``, and ``label`` where there is one."""
    clinc = pd.read_parquet(data_folder("clinc150") / "data_full.parquet")
    tweets = pd.read_parquet(data_folder("airline_tweets") / "tweets.parquet").sort_values("created")
    general = pd.read_parquet(data_folder("halueval_general") / "general.parquet")
    questions = general.rename(columns={"user_query": "text"})[["text"]]
    answers = general.rename(columns={"chatgpt_response": "text"})[["text"]]
    films = {part: pd.read_parquet(data_folder("sst2") / f"{part}.parquet") for part in ("train", "test")}
    return {
        "clinc150": (clinc[clinc.split == "train"], clinc[clinc.split == "test"]),
        "airline_tweets": (tweets[:10_000], tweets[10_000:]),
        "halueval_questions": (questions[:3000], questions[3000:]),
        "halueval_answers": (answers[:3000], answers[3000:]),
        "sst2": (films["train"], films["test"]),
    }


def unseen_texts() -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """The same of data that no bound was chosen on, all rows of a question on one side."""
    solved = pd.read_parquet(data_folder("gsm8k_model_solutions") / "solutions.parquet")
    folder = data_folder("refchecker_claims")
    checked = pd.concat([pd.read_parquet(folder / f"{name}_responses.parquet") for name in ("dolly", "nq")])
    kinds = {
        "gsm8k_questions": (solved.drop_duplicates("question_id"), "question_id", "question"),
        "gsm8k_solutions": (solved, "question_id", "solution"),
        "refchecker_responses": (checked, "id", "response"),
    }
    found = {}
    for name, (table, key, column) in kinds.items():
        is_first = table[key].isin(sorted(table[key].unique())[::2])
        texts = table[[column]].rename(columns={column: "text"})
        found[name] = texts[is_first], texts[~is_first]
    return found


def of_texts(name: str, learned: pd.DataFrame, judged: pd.DataFrame) -> tuple[Figure, Figure]:
    """Share of planted edits found, and of the other rows left alone."""
    rng = np.random.default_rng(SEED)
    long = [text for text in judged.text if len(text.split()) >= LEAST_WORDS]
    vocabulary = " ".join(long).split()
    planted = [edited(rng, text, vocabulary) for text in long]
    rows = [*planted, *learned.text]
    batches = {"learned": rows, "judged": list(judged.text)}
    left, right = sides(
        {side: Batch.from_columns({"inputs.text": texts}, model="m") for side, texts in batches.items()}
    )
    found = matched(left, right)
    hits = sum(row in found for row in range(len(planted)))
    wrong = 0
    for row, other in found.items():
        if row >= len(planted):
            labels = ("label" in learned) and (learned.label[row - len(planted)], judged.label[other])
            wrong += int(not labels or labels[0] != labels[1])
    return _figures(name, hits, len(planted), wrong, len(learned), f"{name}, seed {SEED}")


def of_numbers(name: str, table: pd.DataFrame, columns: Sequence[str]) -> tuple[Figure, Figure]:
    """As above for rows of numbers, each moved by up to half of the tolerated share of its spread."""
    rng = np.random.default_rng(SEED)
    half = len(table) // 2
    learned, judged = (part[list(columns)].astype(float).to_numpy() for part in (table[:half], table[half:]))
    spread = np.clip(judged, *np.quantile(judged, [0.01, 0.99], axis=0)).std(axis=0)
    planted = judged[:2000] + rng.uniform(-0.005, 0.005, (2000, len(columns))) * spread
    left, right = (
        Batch.from_columns({f"inputs.{c}": rows[:, at] for at, c in enumerate(columns)}, model="m")
        for rows in (np.concatenate([planted, learned]), judged)
    )
    found = matched(*sides({"learned": left, "judged": right}))
    hits = sum(row < len(planted) for row in found)
    return _figures(name, hits, len(planted), len(found) - hits, len(learned), f"{name}, seed {SEED}")


def _figures(name: str, hits: int, planted: int, wrong: int, clean: int, data: str) -> tuple[Figure, Figure]:
    found = Figure.of_share(
        f"statistics.leaks.{name}.found", hits, planted, "share of planted leaks", target=0.95, data=data
    )
    alone = Figure.of_share(
        f"statistics.leaks.{name}.alone", clean - wrong, clean, "share of other rows", target=0.99, data=data
    )
    return found, alone


def _percent(figure: Figure) -> str:
    return f"{100 * figure.value:.2f} % of {figure.n:,}"


def main() -> None:
    """Print shares of planted leaks that are found, and of other rows that are left alone."""
    lines = ["| data | planted leaks found | other rows left alone |", "|---|---|---|"]
    results: dict[str, Any] = {
        name: of_texts(name, learned.reset_index(drop=True), judged.reset_index(drop=True))
        for name, (learned, judged) in (texts_of() | unseen_texts()).items()
    }
    power = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    columns = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    results["elec2"] = of_numbers("elec2", power, columns)
    for name, figures in results.items():
        for figure in figures:
            figure.show()
        lines.append(f"| `{name}` | {_percent(figures[0])} | {_percent(figures[1])} |")
    show_table("found", "\n".join(lines))


if __name__ == "__main__":
    main()
