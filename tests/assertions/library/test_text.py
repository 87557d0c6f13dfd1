"""Language, length, repetition and personal data of texts."""

# ruff: noqa: RUF001 - texts of other scripts

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Assertion, Batch
from outrider.assertions.library import text
from outrider.assertions.library.personal import (
    FORMS,
    PersonalDataForm,
    is_card,
    is_iban,
    is_public_ip,
    is_ssn,
    luhn,
)
from tests.requirements import require_data
from tests.soak import examples

# Article 1 of the Universal Declaration of Human Rights, first sentence.
ARTICLE_1 = {
    "da": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft.",
    "de": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "es": (
        "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como "
        "están de razón."
    ),
    "fi": (
        "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on "
        "annettu järki."
    ),
    "fr": (
        "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison."
    ),
    "it": (
        "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione."
    ),
    "nl": (
        "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd "
        "met verstand."
    ),
    "pl": (
        "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni "
        "obdarzeni rozumem."
    ),
    "pt": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. São dotados de razão.",
    "sv": "Alla människor är födda fria och lika i värde och rättigheter. De är utrustade med förnuft.",
    "tr": (
        "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana "
        "sahiptirler ve birbirlerine."
    ),
    "ru": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "uk": "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
    "el": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "ar": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "he": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "zh": "人人生而自由,在尊严和权利上一律平等。",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "ko": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "th": "มนุษย์ทั้งปวงเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
}


def severities(one: Assertion, answers: list[str | None]) -> list[float]:
    column = pa.array(answers, pa.string())
    found: list[float] = (
        one.severities(Batch.from_columns({"outputs.answer": column}, model="m")).round(2).tolist()
    )
    return found


@pytest.mark.parametrize("language", ARTICLE_1)
def test_language_of_a_sentence_is_detected(language: str) -> None:
    assert text.detect_language([ARTICLE_1[language]]) == [language]


def test_only_texts_of_another_language_fire() -> None:
    fired = severities(text.language(["de", "en"]), list(ARTICLE_1.values()))
    assert [language for language, severity in zip(ARTICLE_1, fired, strict=True) if not severity] == [
        "de",
        "en",
    ]


@pytest.mark.parametrize(
    "short", ["", "   ", "OK", "42 + 1 = 43", "https://example.org/de/das/ist/nicht", "per per per", None]
)
def test_texts_that_say_too_little_are_not_judged(short: str | None) -> None:
    assert severities(text.language("en"), [short]) == [0.0]


def test_an_unknown_language_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="languages of ar, da, de"):
        text.language("xx")


def test_language_is_quiet_on_english_traffic() -> None:
    tweets = pd.read_parquet(require_data("airline_tweets") / "tweets.parquet")["text"].tolist()
    answers = pd.read_parquet(require_data("halueval_general") / "general.parquet")[
        "chatgpt_response"
    ].tolist()
    assert sum(np.array(severities(text.language("en"), tweets)) > 0) <= 2
    # Five of these answers hold another language because the prompt asked for it.
    assert 3 <= sum(np.array(severities(text.language("en"), answers)) > 0) <= 8


def test_length_is_measured_past_its_bound() -> None:
    assert severities(text.length(shortest=3, longest=7), ["", " a ", "abc", "abcdefg", "a" * 15, None]) == [
        *(3.0, 2.0, 0.0, 0.0, 2.0, 0.0)
    ]
    assert severities(text.length(longest=2, unit="words"), ["one two", "one two three four five"]) == [
        0.0,
        2.0,
    ]


def test_length_learns_its_bounds_from_reference_texts() -> None:
    usual = ["word " * count for count in range(20, 60)]
    assert severities(text.length(reference=usual), [usual[0], usual[-1], "word", "word " * 200])[:2] == [
        0.0,
        0.0,
    ]
    assert min(severities(text.length(reference=usual), ["word", "word " * 200])) > 1.0
    with pytest.raises(ValueError, match="shortest <= longest"):
        text.length(shortest=5, longest=4)


@pytest.mark.parametrize(
    ("answer", "fires"),
    [
        ("I am not sure. I am not sure. I am not sure.", True),
        ("the end of the road the end of the road the end of the road", True),
        ("you are you are you are you are you are you are", True),
        ("Step 1: add 3 to 4.\nStep 2: add 5 to 7.\nStep 3: add 9 to 1.", False),
        ("We open at 9. On Sundays we open at 10. We close at 18.", False),
        ("Yes. Yes.", False),
        ("", False),
    ],
)
def test_repetition_fires_on_loops(answer: str, fires: bool) -> None:
    # Beside other texts: phrases never span two records.
    assert (severities(text.repetition(), [answer, "the end of the road", answer])[0] > 0) == fires


@given(st.lists(st.text("ab. \n", max_size=60), max_size=8))
def test_repetition_of_a_text_does_not_depend_on_its_neighbours(answers: list[str]) -> None:
    one = text.repetition(above=0.0)
    assert severities(one, list(answers)) == [severities(one, [answer])[0] for answer in answers]


def test_repetition_finds_the_loops_of_summarisers() -> None:
    folder = require_data("xsum_factuality_workers")
    summaries = pd.concat([pd.read_parquet(path)["summary"] for path in sorted(folder.glob("*.parquet"))])
    looped = summaries.dropna().unique().tolist()
    fired = [s for s, severity in zip(looped, severities(text.repetition(), looped), strict=True) if severity]
    assert fired
    # Each fired one really says a word or pair of words five times or more in a row of few.
    assert all(pd.Series(summary.split()).value_counts().iloc[0] >= 4 for summary in fired)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("Write to ann.lee+x@mail.example.org.", "email"),
        ("Call +44 20 7946 0018 or come by.", "phone"),
        ("Call (555) 123-4567.", "phone"),
        ("Call 1-800-555-0199", "phone"),
        ("IBAN: DE89 3704 0044 0532 0130 00", "iban"),
        ("GB82WEST12345698765432", "iban"),
        ("card 4539 1488 0343 6467, thanks", "card"),
        ("amex 378282246310005", "card"),
        ("from 81.2.69.142 today", "ip"),
        ("from 2001:4860:4860::8888", "ip"),
        ("SSN 219-09-9999", "ssn"),
    ],
)
def test_personal_data_is_found(answer: str, kind: str) -> None:
    assert [found for found, _ in text.find_personal_data(answer)] == [kind]
    assert severities(text.personal_data(), [answer]) == [1.0]


@pytest.mark.parametrize(
    "answer",
    [
        "Version 1.2.3.4.5 of the 192.168.0.1 router and 10.0.0.7",
        "Order 4539 1488 0343 6468",  # Luhn digit wrong
        "DE89 3704 0044 0532 0130 01",  # check digits wrong
        "XX82 WEST 1234 5698 7654 32",  # no such country
        "666-12-1234 and 900-12-1234 and 123-00-1234",
        "5 + 3 - 2 = 6, 2021-11-19, 12:30:45, 1,234,567,890,123,456",
        "user@localhost, @name, a@b",
        "$<<2500*.25=625.0>>625.00 of 13.333333333333334",
        "ISBN 978-3-16-148410-0",
        "abc:def:123",
    ],
)
def test_what_only_looks_like_personal_data_is_not(answer: str) -> None:
    assert text.find_personal_data(answer) == []


@pytest.mark.parametrize(
    "prefix",
    ["a@" * 9000, "1 " * 20000, "1-" * 20000, "x." * 20000, "AB12 " * 9000, "+1(" * 9000, "f:" * 20000],
)
def test_no_text_makes_the_search_long(prefix: str) -> None:
    """Under a deadline of a second or so in the service: linear, not quadratic."""
    assert severities(text.personal_data(), [prefix]) is not None


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=examples(40))
@given(st.data())
def test_the_sieve_lets_every_finding_through(form: PersonalDataForm, data: st.DataObject) -> None:
    found = data.draw(st.from_regex(form.shape, fullmatch=True, alphabet=st.characters(max_codepoint=126)))
    assert pc.match_substring_regex(pa.array([found]), form.hint)[0].as_py()


def test_a_wrong_digit_is_always_seen() -> None:
    card, iban = "4539148803436467", "DE89370400440532013000"
    assert is_card(card)
    assert is_iban(iban)
    for place in range(len(card)):
        changed = card[:place] + str((int(card[place]) + 1) % 10) + card[place + 1 :]
        assert not luhn(changed)
    for place in range(4, len(iban)):
        assert not is_iban(iban[:place] + str((int(iban[place]) + 1) % 10) + iban[place + 1 :])
    assert not is_ssn("000-12-3456")
    assert not is_public_ip("127.0.0.1")


def test_what_the_other_side_said_itself_is_no_leak() -> None:
    records = [
        {"inputs": {"prompt": prompt}, "outputs": {"answer": "Write to a@b.example."}}
        for prompt in ("I am a@b.example", "Who are you?", None)
    ]
    batch = Batch.from_records(records, model="m")
    assert text.personal_data().severities(batch).tolist() == [0.0, 1.0, 1.0]
    assert text.personal_data(known=None).severities(batch).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="kinds must be of card, email"):
        text.personal_data(kinds=[])


def test_a_column_that_holds_no_text_is_refused() -> None:
    batch = Batch.from_columns({"outputs.answer": np.array([1, 2])}, model="m")
    with pytest.raises(TypeError, match="must hold texts"):
        text.length().severities(batch)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_text_assertions_absent_column_never_fires(rows: int) -> None:
    absent = Batch.from_columns({"outputs.x": np.zeros(rows)}, model="m")
    for one in (text.language(), text.repetition(), text.personal_data(), text.length()):
        assert not one(absent).any()
