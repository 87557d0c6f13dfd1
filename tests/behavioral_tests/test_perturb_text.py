"""What the families of text perturbations do, by example; and that what they leave alone stays."""

import numpy as np
import pandas as pd
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation
from outrider.behavioral_tests.perturb.text.word_lists import rows, words
from tests.requirements import require_data


def changed(perturbation: Perturbation, text: str, seed: int = 0) -> str:
    batch = Batch.from_columns({"inputs.text": [text]}, model="m")
    found: str = perturbation(batch, np.random.default_rng(seed)).column("inputs.text")[0]
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("It was good.", "It was not good."),
        ("it 's a charming journey .", "it 's not a charming journey ."),
        ("I'm sure about that", "I'm not sure about that"),
        ("The staff was rude. They left.", "The staff was not rude. They left."),
        ("@united I love this airline", "@united I don't love this airline"),
        ("She likes the film", "She doesn't like the film"),
        ("We flew to Boston.", "We didn't fly to Boston."),
        ("You should go there", "You shouldn't go there"),
        ("They've been kind to us", "They have not been kind to us"),
        ("I'll wait for you", "I won't wait for you"),
        ("I NEED TO TALK", "I DON'T NEED TO TALK"),
        ("THIS IS UNBELIEVABLE", "THIS IS NOT UNBELIEVABLE"),
    ],
)
def test_a_sentence_is_denied(before: str, after: str) -> None:
    assert changed(perturb.text.add_negation(), before) == after


@pytest.mark.parametrize(
    "text",
    [
        "Is it good?",
        "It was never good.",
        "a charming journey",
        "thank you for flying",
        "The son 's room is a triumph",
        "this delayed bag was mine",
        "Everyone who is here likes it",
        "It is already late",
        "Good film",
    ],
)
def test_nothing_is_denied_where_no_rule_is_sure(text: str) -> None:
    assert changed(perturb.text.add_negation(), text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("It isn't bad, I don't mind.", "It is bad, I mind."),
        ("She doesn't like it", "She likes it"),
        ("we did n't see the point", "we saw the point"),
        ("You can't print it", "You can print it"),
        ("Do not see this film", "See this film"),
        ("I won't go", "I will go"),
        ("it 's not silly", "it 's silly"),
        ("YOU CAN'T PRINT IT", "YOU CAN PRINT IT"),
        ("You don\u2019t know", "You know"),
    ],
)
def test_a_negation_is_taken_back(before: str, after: str) -> None:
    assert changed(perturb.text.remove_negation(), before) == after


@pytest.mark.parametrize(
    "text",
    [
        "I don't have any idea",
        "not only good",
        "I never fly",
        "There is no way",
        "It's not that bad",
        "Why not?",
    ],
)
def test_a_negation_on_which_other_words_hang_stays(text: str) -> None:
    assert changed(perturb.text.remove_negation(), text) == text


def test_removing_what_was_added_gives_the_text_back() -> None:
    for text in ("It was good.", "She likes the film", "We flew to Boston.", "You should go there"):
        denied = changed(perturb.text.add_negation(), text)
        assert changed(perturb.text.remove_negation(), denied) == text


def test_names_keep_their_gender_and_stand_everywhere() -> None:
    women, men = set(words("women")), set(words("men"))
    for seed in range(20):
        first, *_, again = changed(perturb.text.names(), "Mary called. Thanks, Mary", seed).split()
        assert first in women - {"Mary"}
        assert first == again
        assert changed(perturb.text.names(), "Hi Peter!", seed).split()[1].strip("!") in men - {"Peter"}


@pytest.mark.parametrize(
    "text",
    ["mary called", "@Mary called", "Mary Poppins", "Hotel Mary", "nobody", "Marys", "Mary-Ann", "Grace"],
)
def test_who_is_not_surely_a_person_keeps_the_name(text: str) -> None:
    assert changed(perturb.text.names(), text) == text


def test_a_last_name_alone_and_a_first_name_alone_change() -> None:
    assert changed(perturb.text.names(part="last"), "Mary Smith").split()[0] == "Mary"
    assert changed(perturb.text.names(part="first"), "Mary Smith").split()[1] == "Smith"
    assert changed(perturb.text.names(part="last"), "Mary called") == "Mary called"


def test_a_city_becomes_a_city_and_a_country_a_country() -> None:
    places = perturb.text.locations(cities=["Boston", "Paris"], countries=["France", "Peru"])
    assert changed(places, "from Boston, then Boston again") == "from Paris, then Paris again"
    assert changed(places, "in France") == "in Peru"
    assert changed(places, "Boston's airport") == "Paris's airport"
    for text in (
        "Boston, MA",
        "the Boston Globe",
        "#Boston",
        "boston",
        "Bostonian",
        "South Boston",
        "a Boston bar",
    ):
        assert changed(places, text) == text


def test_numbers_keep_their_digits() -> None:
    for seed in range(30):
        new = changed(perturb.text.numbers(), "after 95 minutes", seed).split()[1]
        assert new != "95"
        assert 76 - 1 <= int(new) <= 99
    assert changed(perturb.text.numbers(), "12 of 12") in [f"{n} of {n}" for n in range(10, 16)]


@pytest.mark.parametrize(
    "text",
    [
        "in 1999",
        "$20",
        "$ 20",
        "20%",
        "20 %",
        "3/4/2015",
        "10:30",
        "5pm",
        "7 pm",
        "v2.0",
        "A380",
        "#12",
        "2 late",
        *("1 hour", "007", "1,000", "3.5", "12th", "-5"),
    ],
)
def test_years_prices_times_and_codes_stay(text: str) -> None:
    assert changed(perturb.text.numbers(), text) == text


def test_synonyms_take_capitals_and_articles_along() -> None:
    mapping = {"film": ["opera"], "entire": ["whole"]}
    assert changed(perturb.text.synonyms(mapping=mapping), "A Film") == "An Opera"
    assert changed(perturb.text.synonyms(mapping=mapping), "an entire day") == "a whole day"
    assert changed(perturb.text.synonyms(mapping=mapping), "films") == "films"


def test_word_lists_hold_no_word_twice() -> None:
    assert all(len(set(words(name))) == len(words(name)) for name in ("women", "men"))
    assert not set(words("women")) & set(words("men"))
    assert len({row[0] for row in rows("verbs")}) == len(rows("verbs"))
    assert all(len(row) >= 2 for row in rows("synonyms"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("What is the fare?", "Can you tell me what the fare is?"),
        ("A lot of bags", "Lots of bags"),
        ("in order to see", "to see"),
        ("Honestly, it was fine", "It was fine"),
        ("due to the fact that it rains", "because it rains"),
    ],
)
def test_paraphrases(before: str, after: str) -> None:
    assert changed(perturb.text.paraphrase(), before) == after


def test_contractions_leave_what_would_read_wrong() -> None:
    for text in ("Yes, I am.", "I have to go", "it's been a while", "isn't it"):
        assert changed(perturb.text.contractions(), text) == text
    assert changed(perturb.text.contractions(), "I have been there") == "I've been there"


def test_compatibility_forms_are_normalised_back() -> None:
    import unicodedata

    for style in ("fullwidth", "bold", "italic"):
        styled = changed(perturb.text.compatibility(style=style), "I love it")
        assert styled != "I love it"
        assert unicodedata.normalize("NFKC", styled) == "I love it"


def test_homoglyphs_are_not_normalised_back() -> None:
    import unicodedata

    text = changed(perturb.text.confusables(), "a scope")
    assert unicodedata.normalize("NFKC", text) != "a scope"
    assert len(text) == len("a scope")


def test_invisible_characters_have_no_width() -> None:
    assert (
        changed(perturb.text.zero_width(), "ab").translate({0x200B: None, 0x200C: None, 0x2060: None}) == "ab"
    )


def test_additions_stand_where_they_are_asked_to() -> None:
    assert changed(perturb.text.phrase("text", "Really."), "Good") == "Good Really."
    assert changed(perturb.text.phrase("text", "Really.", at="start"), "Good") == "Really. Good"
    assert changed(perturb.text.url(), "Good").startswith("Good https://t.co/")
    assert changed(perturb.text.handle(), "Good")[0] == "@"
    assert changed(perturb.text.emoji(), "  ") == "  "


def test_arguments_that_would_change_nothing_are_refused() -> None:
    for make in (
        perturb.text.keyboard,
        perturb.text.whitespace,
        perturb.text.zero_width,
        perturb.text.synonyms,
    ):
        with pytest.raises(ValueError, match="count must be >= 1, got 0"):
            make(count=0)
    with pytest.raises(ValueError, match="at least one phrase"):
        perturb.text.phrase("text")


def test_negation_applies_to_as_many_real_sentences_as_the_guide_says() -> None:
    shares = {}
    for name, file in (("sst2", "test.parquet"), ("airline_tweets", "tweets.parquet")):
        texts = pd.read_parquet(require_data(name) / file)["text"].drop_duplicates().tolist()
        batch = Batch.from_columns({"inputs.text": texts}, model="m")
        for family in (perturb.text.add_negation, perturb.text.remove_negation):
            found = perturb.apply(family(), batch, np.random.default_rng(0))
            shares[name, family.__name__] = found.changed.mean()
    assert shares["sst2", "add_negation"] > 0.08
    assert shares["airline_tweets", "add_negation"] > 0.15
    assert shares["sst2", "remove_negation"] > 0.04
    assert shares["airline_tweets", "remove_negation"] > 0.08
