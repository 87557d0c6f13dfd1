"""How many real texts the rules of negation apply to, and how many of their results read as English.

The first is counted; the second was read by one person, who counted what reads as English as far as the
change goes: 50 results of each, drawn from texts other than those that the rules were written on, or all
where there are fewer. Readings cannot be run again: they are data of this file.
"""

import numpy as np
import pandas as pd

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.behavioral_tests import perturb

SOURCES = {"sst2": ("SST-2 test", "test.parquet"), "airline_tweets": ("airline tweets", "tweets.parquet")}
FAMILIES = {"add_negation": perturb.text.add_negation, "remove_negation": perturb.text.remove_negation}
READ = {
    ("add_negation", "sst2"): (49, 50),
    ("add_negation", "airline_tweets"): (50, 50),
    ("remove_negation", "sst2"): (42, 42),
    ("remove_negation", "airline_tweets"): (49, 50),
}
"""Results that read as English, and results that were read."""


def main() -> None:
    """Print shares and their table."""
    batches = {
        name: Batch.from_columns(
            {"inputs.text": pd.read_parquet(data_folder(name) / file)["text"].drop_duplicates().tolist()},
            model="m",
        )
        for name, (_, file) in SOURCES.items()
    }
    heads = [f"{shown}, {batches[name].rows:,}" for name, (shown, _) in SOURCES.items()]
    rows = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for family, make in FAMILIES.items():
        applied, read = [], []
        for name, batch in batches.items():
            changed = perturb.apply(make(), batch, np.random.default_rng(0)).changed
            stem, hits = f"behavioral.negation.{family}.{name}", int(changed.sum())
            data = f"distinct texts of {name}"
            applied.append(Figure.of_share(f"{stem}.applies", hits, batch.rows, "of texts", data=data))
            data = f"results on texts of {name}, read by one person"
            read.append(Figure.of_share(f"{stem}.reads", *READ[family, name], "of results", data=data))
        for figure in (*applied, *read):
            figure.show()
        shares = [f"{100 * one.value:.1f} % ({_interval(one)})" for one in applied]
        rows.append(f"| `{family}` applies to | {' | '.join(shares)} |")
        counts = [f"{round(one.value * (one.n or 0))} of {one.n} ({_interval(one)})" for one in read]
        rows.append(f"| … of which read as English | {' | '.join(counts)} |")
    show_table("negation", "\n".join(rows))


def _interval(one: Figure) -> str:
    return f"{100 * (one.low or 0.0):.0f} to {100 * (one.high or 0.0):.0f} %"


if __name__ == "__main__":
    main()
