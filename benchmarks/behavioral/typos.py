"""One typo in each of 2,000 real sentences, against what CheckList does for it, same run, same sentences.

CheckList 0.0.11 wants an environment of its own; ``peer_typo`` takes the steps of its ``Perturb.add_typos``
(list of characters, one ``numpy.random.choice`` a sentence, swap, join). CheckList is MIT licensed,
Copyright (c) 2020 Marco Tulio Correia Ribeiro. Outrider's side is the whole perturbation, batch to batch.
CPU seconds.
"""

import time

import numpy as np
import pyarrow.parquet as pq

from benchmarks.behavioral._medians import medians
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.behavioral_tests import perturb

SENTENCES = 2_000
RUNS = 15


def sentences() -> list[str]:
    """The longest phrases of SST-2's training data, which are its full sentences."""
    texts = pq.read_table(data_folder("sst2") / "train.parquet", columns=["text"])["text"].to_pylist()
    return sorted(texts, key=len, reverse=True)[:SENTENCES]


def peer_typo(text: str, count: int = 1) -> str:
    """Swap characters as CheckList does, equal ones too."""
    characters = list(text)
    for at in np.random.choice(len(characters) - 1, count):
        characters[at], characters[at + 1] = characters[at + 1], characters[at]
    return "".join(characters)


def main() -> None:
    """One figure: how often this fits into CheckList's time."""
    texts = sentences()
    batch = Batch.from_records([{"inputs": {"text": text}} for text in texts], model="m")
    typos = perturb.text.typos()

    def ours() -> object:
        return typos(Batch(batch.to_arrow(), model="m"), np.random.default_rng(0))

    theirs_s, ours_s = medians([lambda: [peer_typo(text) for text in texts], ours], RUNS, time.process_time)
    changed = perturb.apply(typos, batch, np.random.default_rng(0)).changed
    equal = sum(peer_typo(text) == text for text in texts)
    print(f"# unchanged: {int((~changed).sum())} of {len(texts)} here, {equal} by CheckList's way")
    against = f"CheckList's steps, {theirs_s * 1e3:.4g} ms"
    Figure("behavioral.typos", ours_s * 1e3, "ms", against, theirs_s / ours_s, 2.0).show()


if __name__ == "__main__":
    main()
