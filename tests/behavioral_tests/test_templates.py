import time
from types import SimpleNamespace

import pytest

from outrider.behavioral_tests import template


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
    assert time.perf_counter() - started < 1.0
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
