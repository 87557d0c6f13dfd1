"""What holds for every template: slots give the text, order is that of nested loops, samples are fair."""

import itertools
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from outrider.behavioral_tests import Filled, Template, template
from tests.soak import examples

SLOTS = ("x", "y", "y1", "y2", "z")
WORDS = st.lists(st.text(st.characters(codec="utf-8"), max_size=4), min_size=1, max_size=5)
LITERALS = st.text(st.characters(codec="utf-8", exclude_characters="{}"), max_size=4)


@st.composite
def templates(draw: st.DrawFn) -> Template:
    names = draw(st.lists(st.sampled_from(SLOTS), max_size=5))
    pattern = draw(LITERALS) + "".join(f"{{{name}}}{draw(LITERALS)}" for name in names)
    return template(pattern, x=draw(WORDS), y=draw(WORDS), z=draw(WORDS))


def by_loops(filled_from: Template) -> list[dict[str, Any]]:
    """Slots of all combinations, the slow and obvious way."""
    names = list(filled_from.choices)
    rows = []
    for picks in itertools.product(*(range(len(filled_from.choices[name])) for name in names)):
        taken = Counter((filled_from.sources[name], pick) for name, pick in zip(names, picks, strict=True))
        if max(taken.values(), default=1) == 1:
            rows.append(
                {name: filled_from.choices[name][pick] for name, pick in zip(names, picks, strict=True)}
            )
    return rows


@given(templates())
@settings(max_examples=examples(200))
def test_a_product_is_what_nested_loops_give(made: Template) -> None:
    expected = by_loops(made)
    filled = made.product()
    assert len(filled) == made.combinations == len(expected)
    assert list(filled.slots) == expected
    assert filled.values == tuple(made.pattern.format(**slots) for slots in expected)
    assert filled.texts().to_pylist() == list(filled.values)
    for name in made.choices:
        assert filled.slot(name).tolist() == [slots[name] for slots in expected]


@given(templates(), st.integers(0, 30), st.integers(0, 2**32))
def test_slots_of_a_sample_reproduce_its_texts(made: Template, rows: int, seed: int) -> None:
    filled = made.sample(rows, seed=seed)
    assert len(filled) == min(rows, made.combinations)
    assert filled.values == tuple(made.pattern.format(**slots) for slots in filled.slots)
    if made.choices:
        picks = np.array([*filled.parts[0].picks.values()]).T.tolist()
        assert len({tuple(row) for row in picks}) == len(filled)
    assert made.sample(rows, seed=seed) == filled


@given(templates(), st.data())
def test_one_case_is_the_case_of_the_whole(made: Template, data: st.DataObject) -> None:
    filled = made.product()
    if len(filled):
        row = data.draw(st.integers(-len(filled), len(filled) - 1))
        assert filled[row] == filled.values[row]
        assert filled.slots[row] == list(filled.slots)[row]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    assert filled[start:stop].values == filled.values[start:stop]
    assert made.product(limit=stop).values == filled.values[:stop]


@given(templates(), templates(), templates())
def test_differences_and_sums_keep_the_laws_of_sets(one: Template, two: Template, three: Template) -> None:
    a, b, c = (made.product(limit=40) for made in (one, two, three))
    assert (a - b).values == tuple(value for value in a.values if value not in set(b.values))
    assert len(a - a) == 0
    assert a - b - c == a - c - b == a - (b + c)
    assert ((a + b) - c).values == (a - c).values + (b - c).values
    assert (a + b).values == a.values + b.values
    assert list((a + b).slots) == [*a.slots, *b.slots]
    assert (a + b).unique().values == tuple(dict.fromkeys(a.values + b.values))
    assert a.unique().unique() == a.unique()
    assert {*(a - b)} | ({*a} & {*b}) == {*a}


def drawn(made: Template, rows: int, seeds: int) -> Counter[str]:
    return Counter(value for seed in range(seeds) for value in made.sample(rows, seed=seed))


def test_every_combination_is_drawn_equally_often() -> None:
    """Also where the rule of equal picks forbids 3 in 4 combinations of a list of four with three slots."""
    made = template("{y}{y1}{y2}{x}", x=["!", "?"], y=["a", "b", "c", "d"])
    assert made.combinations == 4 * 3 * 2 * 2
    counts = drawn(made, 5, 4000)
    assert len(counts) == made.combinations
    assert chisquare(list(counts.values())).pvalue > 0.01


def test_every_place_of_a_sample_is_uniform() -> None:
    """A sample is in random order: its first case is as random as the whole."""
    made = template("{y}{y1}", y=["a", "b", "c", "d"])
    counts = Counter(made.sample(3, seed=seed)[0] for seed in range(6000))
    assert len(counts) == 12
    assert chisquare(list(counts.values())).pvalue > 0.01


def test_more_combinations_than_an_integer_counts() -> None:
    slots = "".join(f"{{x{i}}} " for i in range(1, 9))
    made = template(slots, x=range(1000))
    assert made.combinations > 2**64
    filled = made.sample(2000, seed=3)
    assert len(set(filled.values)) == 2000
    assert all(len(set(slots.values())) == 8 for slots in filled.slots)
    spread = np.array(filled.parts[0].picks["x1"])
    assert chisquare(np.bincount(spread // 100, minlength=10)).pvalue > 0.01
    assert made.product(limit=2).values == ("0 1 2 3 4 5 6 7 ", "0 1 2 3 4 5 6 8 ")


def test_a_rule_that_forbids_nearly_everything_costs_nothing() -> None:
    """Ten slots of one list of ten: 10! of 10**10 combinations are allowed, one in 2,756."""
    made = template("".join(f"{{x{i}}}" for i in range(1, 11)), x=list("0123456789"))
    assert made.combinations == 3_628_800
    filled: Filled = made.sample(1000, seed=1)
    assert len(set(filled.values)) == 1000
    assert all(sorted(value) == list("0123456789") for value in filled.values)
