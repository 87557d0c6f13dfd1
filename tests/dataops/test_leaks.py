import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.dataops.datasets.leak_moves import KnownRows, Moves, Settled, report_words, settle
from outrider.dataops.datasets.leaks import (
    PAIRS,
    Leak,
    find_leaks,
    find_matches,
    find_repeats,
    leak_words,
    sides,
)
from outrider.dataops.datasets.near_texts import near_texts, normalised, sketch_texts, text_likeness
from outrider.dataops.datasets.near_values import chance, near_values, sketch_values
from outrider.dataops.datasets.neighbours import equal, neighbours
from outrider.dataops.datasets.versions import Provenance
from tests.requirements import require_data
from tests.strategies import batches

WORDS = [
    a + b + c for a in ("ba", "ko", "li", "mu", "ste") for b in ("ra", "no", "ti", "pel") for c in "ntskr"
]


def sentences(rng: np.random.Generator, rows: int, *, least: int = 8, most: int = 30) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(least, most))) for _ in range(rows)]


def edited(rng: np.random.Generator, text: str) -> str:
    """Another case, punctuation and white space, and one word in ten replaced, dropped or put in."""
    words = text.split()
    for _ in range(max(1, len(words) // 10)):
        at, kind = rng.integers(len(words)), rng.integers(3)
        words[at : at + (kind != 0)] = [] if kind == 1 and len(words) > 4 else [str(rng.choice(WORDS))]
    text = (" " if rng.random() < 0.5 else "  ").join(words)
    return str(rng.choice([text.upper(), text.title(), text])) + str(rng.choice(["", "!", " ...", "?!"]))


def rows_of(prefix: str, **columns: object) -> Batch:
    count = len(next(iter(columns.values())))  # type: ignore[arg-type]
    ids = [f"{prefix}{row}" for row in range(count)]
    named = {name if name == "entity" else f"inputs.{name}": values for name, values in columns.items()}
    return Batch.from_columns({"id": ids} | named, model="m")


def leaks_of(left: Batch, right: Batch) -> dict[str, Leak]:
    return {leak["kind"]: leak for leak in find_leaks(*sides({"train": left, "gate": right}))}


def found_rows(left: Batch, right: Batch, kind: str) -> set[int]:
    one, other = sides({"train": left, "gate": right})
    return {int(row) for match in find_matches(one, other) if match.kind == kind for row in match.pairs.rows}


# ---- planted ---------------------------------------------------------------------------------------------


def test_planted_leaks_are_found_and_nothing_else_is() -> None:
    rng = np.random.default_rng(5)
    judged, fresh = sentences(rng, 1000), sentences(rng, 2000)
    texts = [edited(rng, judged[row]) for row in range(200)] + judged[200:400] + fresh
    entities = [f"new{row}" for row in range(len(texts))]
    for row in range(400, 600):
        entities[row] = f"old{row}"
    gate = rows_of("g", text=judged, entity=[f"old{row}" for row in range(1000)])
    train = rows_of("t", text=texts, entity=entities)
    for kind, truth in (("text", range(200)), ("row", range(200, 400)), ("entity", range(400, 600))):
        found = found_rows(train, gate, kind)
        assert len(found & set(truth)) >= 0.95 * len(truth), kind
        assert len(found - set(truth)) <= 0.01 * (len(texts) - 600), kind


def test_one_other_letter_of_forty_is_a_leak_in_scripts_without_spaces() -> None:
    rng = np.random.default_rng(6)
    for first in (0x4E00, 0x3041, 0x0E01):  # Han, Hiragana, Thai
        letters = [chr(code) for code in range(first, first + 40)]
        judged = ["".join(rng.choice(letters, 40)) for _ in range(60)]
        near = [text[:20] + chr(first + 41) + text[21:] for text in judged[:30]]
        other = ["".join(rng.choice(letters, 40)) for _ in range(30)]
        assert found_rows(rows_of("t", text=near + other), rows_of("g", text=judged), "text") == set(
            range(30)
        )


def test_labels_in_a_script_without_spaces_leave_a_table_one_of_numbers() -> None:
    rng = np.random.default_rng(7)
    branch, area = rng.choice(["กรุงเทพมหานคร", "เชียงใหม่"], 200), rng.normal(size=200)
    gate = rows_of("g", branch=branch, area=area, rooms=rng.normal(size=200))
    train = rows_of("t", branch=branch, area=area + 1e-4, rooms=gate.column("inputs.rooms"))
    assert found_rows(train, gate, "values") == set(range(200))


def test_near_duplicate_numbers_planted_in_a_table_and_in_images_are_found() -> None:
    rng = np.random.default_rng(6)
    table, images = rng.normal(0, 1, (1500, 6)) * [1, 10, 100, 1, 1, 1], rng.random((600, 8, 8))
    kinds = rng.choice(["a", "b"], 1500)
    judged = {f"x{at}": table[:500, at] for at in range(6)} | {"kind": kinds[:500].tolist()}
    noisy = table.copy()
    noisy[:500] += rng.uniform(-0.005, 0.005, (500, 6)) * table.std(axis=0)
    learned = {f"x{at}": noisy[:, at] for at in range(6)} | {"kind": kinds.tolist()}
    found = found_rows(rows_of("t", **learned), rows_of("g", **judged), "values")
    assert len([row for row in found if row < 500]) >= 0.95 * 500
    assert not [row for row in found if row >= 500]
    turned = learned | {"kind": ["b" if kind == "a" else "a" for kind in kinds]}
    assert not found_rows(rows_of("t", **turned), rows_of("g", **judged), "values"), "the rest must be equal"
    blurred = images.copy()
    blurred[:300] += rng.normal(0, 0.002, (300, 8, 8))
    assert found_rows(rows_of("t", x=blurred), rows_of("g", x=images[:300]), "values") == set(range(300))


def test_on_real_questions_planted_edits_are_found_and_other_intents_are_not() -> None:
    """Its authors paraphrase each other: true near-duplicates are there, but hardly any of another intent."""
    rng = np.random.default_rng(7)
    given = pd.read_parquet(require_data("clinc150") / "data_full.parquet")
    train, test = (given[given.split == split].reset_index(drop=True) for split in ("train", "test"))
    left, right = sketch_texts(train.text.tolist()[:6000]), sketch_texts(test.text.tolist())
    pairs = near_texts(left, right, least=0.55)
    labels = train.label.to_numpy()[pairs.rows], test.label.to_numpy()[pairs.others]
    assert (labels[0] != labels[1]).sum() <= 0.01 * 6000
    asked = [text for text in test.text if len(text.split()) >= 5]
    again = near_texts(sketch_texts([edited(rng, text) for text in asked]), right, least=0.55)
    assert len(again.rows) >= 0.95 * len(asked)


# ---- against slow loops ----------------------------------------------------------------------------------


def slow_likeness(one: str, other: str) -> float:
    grams = [{f" {text} "[at : at + 4] for at in range(len(text) - 1)} for text in (one, other)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def test_near_texts_are_those_of_a_loop_over_all_pairs() -> None:
    rng = np.random.default_rng(8)
    right = sentences(rng, 120, least=4, most=12)
    left = [edited(rng, edited(rng, right[row % 120])) for row in range(240)]
    pairs = near_texts(sketch_texts(left), sketch_texts(right), least=0.6)
    plain = [normalised(text) for text in left], [normalised(text) for text in right]
    best = [max(slow_likeness(one, other) for other in plain[1]) for one in plain[0]]
    truth = {row for row, likeness in enumerate(best) if likeness >= 0.6}
    found = set(pairs.rows.tolist())
    assert found <= truth
    assert len(found) >= 0.97 * len(truth) > 100
    for row, other, likeness in zip(*(each.tolist() for each in pairs), strict=True):
        assert likeness == pytest.approx(slow_likeness(plain[0][row], plain[1][other]))
        assert likeness == text_likeness(plain[0][row], plain[1][other])


def test_near_values_are_those_of_a_loop_over_all_pairs() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(0, [1, 5, 2], (400, 3))
    left, right = values[:200] + rng.normal(0, 0.004, (200, 3)), values[:300]
    sketches = [
        sketch_values(
            rows_of("r", **{f"x{at}": side[:, at] for at in range(3)}),
            ["inputs.x0", "inputs.x1", "inputs.x2"],
        )
        for side in (left, right)
    ]
    pairs = near_values(sketches[0], sketches[1], share=0.01)
    both = np.concatenate([left, right])
    spread = np.clip(both, *np.quantile(both, [0.01, 0.99], axis=0)).std(axis=0)
    apart = (np.abs(left[:, None] - right[None]) / spread).max(axis=2)
    truth = set(np.flatnonzero(apart.min(axis=1) <= 0.01).tolist())
    assert set(pairs.rows.tolist()) <= truth
    assert len(pairs.rows) >= 0.97 * len(truth) > 100
    assert pairs.likeness.tolist() == pytest.approx((1 - apart[pairs.rows, pairs.others]).tolist())


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30))
def test_equal_finds_a_partner_for_each_row_that_has_one(left: list[int], right: list[int]) -> None:
    ours, theirs = np.array(left, dtype=np.uint64), np.array(right, dtype=np.uint64)
    pairs = equal(ours, theirs)
    assert set(pairs.rows.tolist()) == {row for row, key in enumerate(left) if key and key in right}
    assert (ours[pairs.rows] == theirs[pairs.others]).all()
    own = equal(ours, ours, is_own=True)
    assert set(own.rows.tolist()) == {row for row, key in enumerate(left) if key and left.count(key) > 1}
    assert (own.rows != own.others).all()
    assert (ours[own.rows] == ours[own.others]).all()


def test_candidates_grow_with_the_rows_also_where_all_share_a_key() -> None:
    keys = np.ones(5000, dtype=np.uint64)
    pairs = sum(len(rows) for rows, _ in neighbours(keys, keys, reach=3))
    assert 5000 <= pairs <= 2 * 3 * 5000


@settings(max_examples=60)
@given(batches(), batches())
def test_any_two_batches_are_compared_and_one_with_itself_shares_every_row_that_has_inputs(
    one: Batch, other: Batch
) -> None:
    left, right = sides({"a": one, "b": other})
    for match in find_matches(left, right):
        assert len(match.pairs.rows) <= one.rows
        assert set(match.pairs.others.tolist()) <= set(range(other.rows))
    left, right = sides({"a": one, "b": one.take(np.arange(one.rows)[::-1])})
    rows = {match.kind: len(match.pairs.rows) for match in find_matches(left, right)}
    assert rows.get("row", 0) == (left.digests != 0).sum()


# ---- what is compared ------------------------------------------------------------------------------------


def test_labels_outputs_and_ids_play_no_part() -> None:
    columns = {"id": ["1", "2"], "inputs.x": [1.5, 2.5], "label.label": [0, 1], "outputs.label": [1, 1]}
    one = Batch.from_columns(columns, model="m")
    other = Batch.from_columns(columns | {"inputs.x": [30.0, 40.0]}, model="m")
    assert leaks_of(one, other) == {}
    relabelled = Batch.from_columns(columns | {"id": ["a", "b"], "label.label": [1, 0]}, model="m")
    assert leaks_of(one, relabelled)["row"]["pairs"] == [["1", "a"], ["2", "b"]]


def test_sides_are_compared_by_the_inputs_that_both_have_or_that_the_model_reads() -> None:
    one = rows_of("a", x=[1.0, 2.0], request=["q1", "q2"])
    other = rows_of("b", x=[1.0, 7.0])
    assert leaks_of(one, other)["row"]["rows"] == 1
    wider = rows_of("c", x=[1.0, 7.0], request=["q8", "q9"])
    assert leaks_of(one, wider) == {}
    declared = find_leaks(*sides({"a": one, "c": wider}, ["inputs.x"]))
    assert [leak["pairs"] for leak in declared] == [[["a0", "c0"]]]


def test_texts_in_conversations_are_compared_and_texts_without_words_are_not() -> None:
    talk = [
        [{"role": "user", "content": "Where is my parcel, ordered on Monday?"}],
        [{"role": "user", "content": "!"}],
    ]
    again = [
        [{"role": "user", "content": "where is my parcel ordered on monday"}],
        [{"role": "user", "content": "?"}],
    ]
    found = leaks_of(rows_of("a", messages=talk), rows_of("b", messages=again))
    assert found["text"]["rows"] == 1
    assert found["text"]["pairs"] == [["a0", "b0"]]


def test_rows_of_other_types_nulls_and_empty_sides_leak_nothing() -> None:
    numbers = rows_of("a", x=[1.0, 2.0])
    assert leaks_of(numbers, rows_of("b", x=["1", "2"])) == {}
    assert leaks_of(rows_of("a", x=[None, None]), rows_of("b", x=[None, None])) == {}
    assert leaks_of(numbers, numbers.take([])) == {}
    assert leaks_of(rows_of("a", y=[1.0]), rows_of("b", x=[1.0])) == {}
    assert leaks_of(rows_of("a", x=[[1.0, 2.0]]), rows_of("b", x=[[1.0, 2.0, 3.0]])) == {}


def test_rows_that_repeat_by_themselves_are_named_and_called_usual() -> None:
    """A table of a few coarse columns: equal rows say nothing. Real copies in a fine one do."""
    rng = np.random.default_rng(1)
    coarse = [rows_of(name, a=rng.integers(0, 3, 300), b=rng.integers(0, 2, 300)) for name in "xy"]
    leak = leaks_of(*coarse)["row"]
    assert (leak["rows"], leak["usual"]) == (300, True)
    assert "about as often within one side" in leak_words([leak])[0]
    few = leaks_of(coarse[0], coarse[1].take([0, 7]))["row"]
    assert few["usual"], "two rows cannot tell, the other side can"
    fine = rng.normal(0, 1, 300)
    copied = leaks_of(
        rows_of("x", a=fine), rows_of("y", a=np.concatenate([fine[:30], rng.normal(0, 1, 270)]))
    )
    assert (copied["row"]["rows"], copied["row"]["usual"]) == (30, False)


def test_chance_says_how_many_near_duplicates_independent_numbers_have() -> None:
    rng = np.random.default_rng(11)
    for columns, rows in ((1, 40), (2, 400)):
        values = rng.normal(0, 1, (2, rows, columns))
        sketches = [
            sketch_values(
                rows_of("r", **{f"x{at}": side[:, at] for at in range(columns)}),
                [f"inputs.x{at}" for at in range(columns)],
            )
            for side in values
        ]
        apart = np.abs(values[0][:, None] - values[1][None]).max(axis=2)
        truth = (apart <= 0.05 * values.std()).sum() / rows
        assert chance(*sketches, share=0.05) == pytest.approx(truth, rel=0.5)
    few = [rows_of(name, x=rng.normal(0, 1, 20)) for name in "ab"]
    assert all(leak["usual"] for leak in find_leaks(*sides(dict(zip("ab", few, strict=True)))))


def test_at_most_twenty_pairs_are_named_by_id_without_content() -> None:
    text = [f"my secret number is {row} {row * 7} thank you" for row in range(100)]
    leak = leaks_of(rows_of("a", text=text), rows_of("b", text=text))["row"]
    assert (leak["rows"], leak["others"], len(leak["pairs"])) == (100, 100, PAIRS)
    assert "secret" not in str(leak)


def test_repeats_of_one_side_are_pairs_without_direction() -> None:
    (side,) = sides(
        {"train": rows_of("a", text=["the same words here", "other words there", "The same words here!"])}
    )
    (found,) = find_repeats(side)
    assert (found["kind"], found["rows"], found["pairs"]) == ("text", 2, [["a0", "a2"]])


# ---- sides -----------------------------------------------------------------------------------------------


def parted(batch: Batch, parts: str, sources: Sequence[str] | None = None) -> list[Provenance]:
    names = {"t": "train", "h": "held_out"}
    given = sources or ["human"] * batch.rows
    return [
        Provenance(str(key), None, source, names[part])
        for key, part, source in zip(batch.keys, parts, given, strict=True)
    ]


def settled(
    values: Sequence[float],
    parts: str,
    *,
    entity: Sequence[str | None] | None = None,
    sources: Sequence[str] | None = None,
    known: KnownRows | None = None,
    moves: Moves = "exact",
) -> Settled:
    columns: dict[str, object] = {"x": list(values)} | ({} if entity is None else {"entity": list(entity)})
    batch = rows_of("n", **columns)
    return settle(batch, parted(batch, parts, sources), known or KnownRows(), moves=moves)


def sides_of(found: Settled) -> dict[str, str]:
    assert found.batch.keys.tolist() == [row.record_id for row in found.provenance]
    return {row.record_id: row.part[0] for row in found.provenance}


GATE = rows_of("g", x=[10.0, 20.0, 30.0], entity=["e1", "e2", "e3"])


def test_a_row_equal_to_one_that_judges_is_held_out_with_all_of_its_entity() -> None:
    found = settled(
        [1.0, 10.0, 2.0, 3.0], "tttt", entity=["a", "b", "b", None], known=KnownRows(judged={"gate@1": GATE})
    )
    assert sides_of(found) == {"n0": "t", "n1": "h", "n2": "h", "n3": "t"}
    assert found.report["moved"] == {"held_out": 2, "train": 0, "left_out": 0}
    (leak,) = found.report["leaks"]
    assert (leak["kind"], leak["between"], leak["pairs"]) == (
        "row",
        ["new train rows", "gate@1"],
        [["n1", "g0"]],
    )
    assert "2 rows were held out for it" in report_words(found.report)
    assert found.report["remaining"] == []


def test_an_entity_of_the_gate_is_held_out_and_one_that_is_replayed_is_learned_from() -> None:
    known = KnownRows(judged={"gate@1": GATE}, learned={"old@1": rows_of("o", x=[77.0], entity=["r"])})
    found = settled([1.0, 2.0, 3.0], "tht", entity=["e1", "r", "z"], known=known)
    assert sides_of(found) == {"n0": "h", "n1": "t", "n2": "t"}
    assert found.report["moved"] == {"held_out": 1, "train": 1, "left_out": 0}


def test_equal_new_rows_of_two_entities_end_on_one_side() -> None:
    assert sides_of(settled([5.0, 5.0, 6.0], "tht", entity=["a", "b", "c"])) == {
        "n0": "h",
        "n1": "h",
        "n2": "t",
    }


def test_a_moved_row_takes_those_along_that_match_it_at_its_new_place() -> None:
    """n1 equals the gate's; its entity brings n2, which n3 equals."""
    found = settled(
        [1.0, 10.0, 2.0, 2.0], "tttt", entity=["a", "b", "b", "c"], known=KnownRows(judged={"gate@1": GATE})
    )
    assert sides_of(found) == {"n0": "t", "n1": "h", "n2": "h", "n3": "h"}


def test_an_entity_with_earlier_rows_and_one_torn_between_both_sides_stay_and_are_named() -> None:
    earlier = rows_of("o", x=[50.0], entity=["a"])
    known = KnownRows(learned={"d@1 train": earlier}, judged={"gate@1": GATE}, own=["d@1 train"])
    found = settled([10.0, 20.0], "tt", entity=["a", "b"], known=known)
    assert sides_of(found) == {"n0": "t", "n1": "h"}
    assert [leak["pairs"] for leak in found.report["remaining"]] == [[["n0", "g0"]]]
    both = KnownRows(learned={"old@1": rows_of("o", x=[20.0])}, judged={"gate@1": rows_of("g", x=[10.0])})
    torn = settled([10.0, 20.0], "th", known=both)
    assert torn.report["moved"]["held_out"] == torn.report["moved"]["train"] == 1
    turned = settled(
        [10.0, 10.0], "th", entity=["a", "a"], known=KnownRows(learned={"old@1": rows_of("o", x=[10.0])})
    )
    assert sides_of(turned) == {"n0": "t", "n1": "h"}, "it should go to both sides: it stays, and is named"
    assert turned.report["leaks"]


def test_weakly_labelled_rows_judge_nobody_and_wait() -> None:
    found = settled(
        [10.0, 1.0], "tt", sources=["weak:flicker", "human"], known=KnownRows(judged={"gate@1": GATE})
    )
    assert sides_of(found) == {"n1": "t"}
    assert found.report["moved"] == {"held_out": 1, "train": 0, "left_out": 1}


@pytest.mark.parametrize(("moves", "parts"), [("none", "tt"), ("exact", "ht"), ("all", "hh")])
def test_the_setting_says_which_leaks_move_rows(moves: Moves, parts: str) -> None:
    gate = rows_of("g", text=["Where is the parcel of my brother?", "I would like to cancel the whole order"])
    batch = rows_of(
        "n", text=["Where is the parcel of my brother?", "i would like to cancel my whole order!"]
    )
    found = settle(batch, parted(batch, "tt"), KnownRows(judged={"gate@1": gate}), moves=moves)
    assert "".join(sides_of(found).values()) == parts
    assert [leak["kind"] for leak in found.report["leaks"]] == ["row", "text"], "named in every case"


def test_usual_matches_move_nothing() -> None:
    rng = np.random.default_rng(3)
    batch, gate = (rows_of(name, a=rng.integers(0, 3, 200), b=rng.integers(0, 2, 200)) for name in "ng")
    found = settle(batch, parted(batch, "t" * 200), KnownRows(judged={"gate@1": gate}), moves="all")
    assert found.report["moved"] == {"held_out": 0, "train": 0, "left_out": 0}
    assert re.match("new train rows and gate@1: 200 rows of the first", report_words(found.report)[0])
