import copy
import pickle
import time
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.behavioral_tests import template
from outrider.behavioral_tests.cases import to_cases
from tests.soak import promised


def test_a_product_goes_through_all_combinations_in_order() -> None:
    filled = template("{x}-{y}", x=["a", "b"], y=["1", "2"]).product()
    assert filled.values == ("a-1", "a-2", "b-1", "b-2")
    assert filled.slots[1] == {"x": "a", "y": "2"}


def test_a_numbered_slot_is_another_pick_of_the_same_list() -> None:
    filled = template("{name} and {name1}", name=["Ada", "Bo"]).product()
    assert filled.values == ("Ada and Bo", "Bo and Ada")
    assert template("{name1} and {name2}", name=["Ada", "Bo"]).product().values == filled.values


@pytest.mark.parametrize(
    ("word", "article"),
    [("engineer", "an"), ("pilot", "a"), ("hour", "an"), ("user", "a"), ("usher", "an"), ("European", "a"),
     ("university", "a"), ("uninvited guest", "an"), ("umbrella", "an"), ("one", "a")],
)  # fmt: skip
def test_the_article_follows_the_sound(word: str, article: str) -> None:
    assert template("{a:word}, {A:word}", word=[word]).product().values == (
        f"{article} {word}, {article.capitalize()} {word}",
    )


def test_structures_attributes_and_indices() -> None:
    pattern = {"premise": "{p.name} has {n[0]} {{things}}", "pair": ("{p.name}", 3)}
    filled = template(pattern, p=[SimpleNamespace(name="Ada")], n=[[2, 4]]).product()
    assert filled.values == ({"premise": "Ada has 2 {things}", "pair": ("Ada", 3)},)


def test_labels_may_depend_on_the_slots() -> None:
    filled = template("{x}", x=["a", "b"], labels=lambda slots: slots["x"] == "b").product()
    assert filled.labels == (False, True)
    assert (filled + filled).labels == (False, True, False, True)


def test_a_sample_is_without_replacement_seeded_and_lazy() -> None:
    many = template("{a1} {a2} {a3} {a4}", a=range(1000))
    started = time.perf_counter()
    one, two, other = many.sample(500, seed=1), many.sample(500, seed=1), many.sample(500, seed=2)
    assert time.perf_counter() - started < promised(1.0)
    assert many.combinations == 1000 * 999 * 998 * 997
    assert len(set(one.values)) == 500
    assert one == two
    assert one != other
    assert len(template("{x}", x=["a", "b", "c"]).sample(10)) == 3


def test_zip_goes_in_step() -> None:
    assert template("{x}{y}", x=["a", "b"], y=["c", "d"]).zip().values == ("ac", "bd")
    with pytest.raises(ValueError, match="one length"):
        template("{x}{y}", x=["a", "b"], y=["c"]).zip()


def test_a_slot_without_values_names_the_lexicons() -> None:
    with pytest.raises(KeyError, match="profession"):
        template("{unheard_of}")


@pytest.mark.parametrize(
    ("word", "article"),
    [("Ukrainian", "a"), ("Ugandan", "a"), ("unidentified", "an"), ("onerous", "an"), ("SMS", "an"),
     ("US", "a"), ("NASA", "a"), ("X-ray", "an"), ("8", "an"), ("18", "an"), ("180", "a"), ("Emu", "an"),
     ("", "a")],
)  # fmt: skip
def test_the_article_knows_capitals_and_numbers(word: str, article: str) -> None:
    assert template("{a:word}", word=[word]).product()[0] == f"{article} {word}"


def test_formats_conversions_and_objects() -> None:
    row = {"name": "Ada", "born": 1815, "tags": ("x", "y")}
    filled = template("{p.name!r} {p[born]:>6} {p.tags[1]} {a:p.name}", p=[row]).product()
    assert filled.values == ("'Ada'   1815 y an Ada",)
    assert filled.slot("p").tolist() == [row]


def test_a_text_a_number_and_a_mapping_are_one_value() -> None:
    assert template("{x}-{y}-{z.a}", x="abc", y=7, z={"a": 1}).product().values == ("abc-7-1",)
    with pytest.raises(TypeError, match="order"):
        template("{x}", x={"b", "a"})


def test_labels_and_notes_may_be_patterns_and_keep_their_types() -> None:
    films = [{"word": "fine", "stars": 4}, {"word": "dull", "stars": 1}]
    filled = template(
        "A {f.word} {thing}",
        f=films,
        thing=["film", "play"],
        labels="{f.stars}",
        meta={"stars": "{f.stars}!", "thing": lambda slots: slots["thing"], "source": "written"},
    ).product()
    assert filled.labels == (4, 4, 1, 1)
    assert filled.meta == {
        "stars": ("4!", "4!", "1!", "1!"),
        "thing": ("film", "play", "film", "play"),
        "source": ("written",) * 4,
    }


def test_notes_of_several_templates_stand_beside_each_other() -> None:
    one = template("{x}", x=["a"], meta={"kind": "one"}).product()
    two = template("{x}", x=["b"], meta={"other": 2}).product()
    assert (one + two).meta == {"kind": ("one", None), "other": (None, 2)}
    with pytest.raises(ValueError, match="labels"):
        one + template("{x}", x=["c"], labels=1).product()


def test_a_billion_cases_are_numbers_until_they_are_looked_at() -> None:
    digits = range(1000)
    filled = template("{a}{b}{c}{d}", a=digits, b=digits, c=digits, d=digits).product()
    assert len(filled) == 10**12
    assert filled[123_456_789_012] == "12345678912"
    assert filled.slots[123_456_789_012] == {"a": 123, "b": 456, "c": 789, "d": 12}
    assert filled[10**12 - 2 :].values == ("999999999998", "999999999999")
    with pytest.raises(ValueError, match="sample"):
        len(filled.values)


def test_structures_subtract_by_value() -> None:
    pairs = template(("{x}", {"to": "{y}"}, 3), x=["a", "b"], y=["a", "b"]).product()
    same = template(("{x}", {"to": "{x}"}, 3), x=["a", "b"]).product()
    assert (pairs - same).values == (("a", {"to": "b"}, 3), ("b", {"to": "a"}, 3))
    other_form = template(["{x}", {"to": "{x}"}, 3], x=["a", "b"]).product()
    assert len(pairs - other_form) == 4, "a list is not a tuple"


def test_texts_go_to_a_batch_with_labels_and_notes() -> None:
    filled = template("{x} is {y}", x=["a", "b"], y=["c"], labels="{y}", meta={"x": "{x}"}).product()
    batch = to_cases(filled).batch
    assert batch.column("inputs.text").tolist() == ["a is c", "b is c"]
    assert batch.column("label.label").tolist() == ["c", "c"]
    assert batch.column("attrs.x").tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "pattern",
    [
        {"one": "{x}", "two": "{x}{y}", "n": 3},
        {"one": "{x}", "nested": {"two": "{y}"}},
        {"inputs": {"t": "{x}"}},
    ],
)
def test_records_are_what_their_values_say(pattern: dict[str, Any]) -> None:
    filled = template(pattern, x=["a", "b"], y=["c", "d"]).product()
    assert to_cases(filled).batch == to_cases(list(filled.values)).batch


def test_a_list_is_a_case_of_several_examples() -> None:
    filled = template(["{x} is fine", "{x} is {y}"], x=["a", "b"], y=["bad"], labels="{x}").product()
    cases = to_cases(filled)
    assert cases.case.tolist() == [0, 0, 1, 1]
    assert cases.batch.column("inputs.text").tolist() == ["a is fine", "a is bad", "b is fine", "b is bad"]
    assert cases.batch.column("label.label").tolist() == ["a", "a", "b", "b"]


def test_each_example_of_a_case_may_have_its_own_label() -> None:
    filled = template(["{x} is fine", "{x} is bad"], x=["a", "b"], labels=["good {x}", "bad"]).product()
    assert to_cases(filled).batch.column("label.label").tolist() == ["good a", "bad", "good b", "bad"]


def test_a_template_can_be_copied_and_sent() -> None:
    made = template("{pattern}", pattern=["a", "b"], meta={"kind": "x"})
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied == made
        assert copied.product() == made.product()


def test_a_wrong_slot_is_named() -> None:
    with pytest.raises(ValueError, match="slot names expected"):
        template("{1x}")
    with pytest.raises(KeyError, match="there are x"):
        template("{x}", x=["a"]).product().slot("y")
    with pytest.raises(ValueError, match=r"slot \{p.born\} cannot be read from \{'name': 'Ada'\}"):
        template("{p.born}", p=[{"name": "Ada"}]).product().texts()
