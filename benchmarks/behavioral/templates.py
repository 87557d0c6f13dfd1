"""100,000 cases of one template with the slot values of every case, against what CheckList does for them.

CheckList 0.0.11 wants its own environment; ``peer_template`` takes the steps of ``Editor.template`` with
``meta=True``, case by case: a dictionary of the slots, a walk down the structure, a regular expression for
the articles, ``str.format`` (a little faster than the original, which does more per call). CheckList is MIT
licensed, Copyright (c) 2020 Marco Tulio Correia Ribeiro. Both sides get the same template and lists; CPU
seconds.
"""

import itertools
import re
import time
from typing import Any

from benchmarks.behavioral._medians import medians
from benchmarks.figure import Figure
from outrider.behavioral_tests import Filled, lexicons, template

PATTERN = "{first_name} {last_name} is {a:profession} from {country}."
SIZES = {"first_name": 10, "last_name": 10, "profession": 20, "country": 50}
LISTS: dict[str, Any] = {name: list(lexicons.lexicon(name))[:size] for name, size in SIZES.items()}
RUNS = 7
_OPTION = r"{([^}]+):([^}]+)}"


def peer_template(pattern: Any, lists: dict[str, list[str]]) -> tuple[list[Any], list[dict[str, str]]]:
    """All combinations and the slots of each."""
    data, meta = [], []
    for row in itertools.product(*lists.values()):
        slots = dict(zip(lists, row, strict=False))
        data.append(peer_walk(pattern, slots))
        meta.append(slots)
    return data, meta


def peer_walk(pattern: Any, slots: dict[str, str]) -> Any:
    """Fill every text of a structure."""
    if isinstance(pattern, str):
        return peer_fill(pattern, slots)
    if isinstance(pattern, list | tuple):
        return type(pattern)([peer_walk(part, slots) for part in pattern])
    if isinstance(pattern, dict):
        return {key: peer_walk(part, slots) for key, part in pattern.items()}
    return pattern


def peer_fill(text: str, slots: dict[str, str]) -> str:
    """Articles first, by the first letter, then the slots."""

    def with_article(match: re.Match[str]) -> str:
        options, key = match.group(1, 2)
        slot = f"{{{key}}}"
        if "a" not in options:
            return slot
        word = slot.format(**slots)
        noun = f"an {word}" if word[0].lower() in ["a", "e", "i", "o", "u"] else f"a {word}"
        return f"{noun.split()[0]} {slot}"

    return re.compile(_OPTION).sub(with_article, text).format(**slots)


def expand() -> tuple[Filled, Any]:
    """The same cases here, as a column of texts."""
    filled = template(PATTERN, **LISTS).product()
    return filled, filled.texts()


def with_slots() -> list[Any]:
    """The same, and a column of the values of every slot."""
    filled, texts = expand()
    return [texts, *(filled.slot(name) for name in SIZES)]


def main() -> None:
    """Figures: how often each fits into CheckList's time."""
    theirs, slots = peer_template(PATTERN, LISTS)
    filled, texts = expand()
    if texts.to_pylist() != theirs or list(filled.slots) != slots:
        raise AssertionError("both sides must make the same cases")
    works = [
        lambda: peer_template(PATTERN, LISTS),
        expand,
        with_slots,
        lambda: template(PATTERN, **LISTS).product().values,
        lambda: template(PATTERN, **LISTS).sample(1000, seed=1).texts(),
    ]
    peer_s, text_s, slots_s, strings_s, sample_s = medians(works, RUNS, time.process_time)
    against = f"CheckList's steps, {peer_s * 1e3:.4g} ms for {len(theirs):,} cases"
    Figure("behavioral.templates", text_s * 1e3, "ms", against, peer_s / text_s, 20.0).show()
    Figure("behavioral.templates.slots", slots_s * 1e3, "ms", against, peer_s / slots_s, 20.0).show()
    Figure("behavioral.templates.strings", strings_s * 1e3, "ms", against, peer_s / strings_s).show()
    huge = template("{a1} {a2} {a3} {a4}", a=range(1001))
    huge_s, _ = medians([lambda: huge.sample(1000, seed=1).texts(), lambda: None], RUNS, time.process_time)
    Figure(
        "behavioral.templates.sample",
        huge_s * 1e3,
        "ms",
        f"1,000 of {huge.combinations:.3g} combinations; 1,000 of 100,000 take {sample_s * 1e3:.4g} ms",
        sample_s / huge_s,
    ).show()


if __name__ == "__main__":
    main()
