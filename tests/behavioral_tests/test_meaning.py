"""Texts whose meaning a perturbation would change are left alone."""

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation

SEEDS = range(12)


def variants(make: Perturbation, text: str) -> set[str]:
    batch = Batch.from_columns({"inputs.text": np.array([text], dtype=object)}, model="m")
    return {
        str(perturb.apply(make, batch, np.random.default_rng(seed)).batch.column("inputs.text")[0])
        for seed in SEEDS
    }


@pytest.mark.parametrize(
    "text",
    [
        "the best the city has to offer",
        "everything you have to say is wrong",
        "this has to be the worst flight ever",
        "she had to walk home",
        "how can you charge money for this ?",
        "asks how much can you take",
        "can you believe this airline",
        "what a lot of nonsense",
        "quite a number of holes",
        "lots in parking lots of the airport",
        "I think of you",
        "when I think how it ended",
        "at the moment of truth",
        "wait until dark",
        "Flying to Tulsa, OK tomorrow",
        "many thanks for nothing",
        "I cannot thank you for that",
        "a wanna be star",
        "not because of you",
    ],
)
def test_paraphrase_leaves_alone_what_it_might_change(text: str) -> None:
    assert variants(perturb.text.paraphrase(), text) == {text}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("you have to see this film", "you need to see this film"),
        ("we don't have to wait", "we don't need to wait"),
        ("@united can you help me?", "@united could you help me?"),
        ("thanks for the help", "thank you for the help"),
        ("there is a lot of charm", "there is lots of charm"),
        ("I think it works", "I believe it works"),
        ("What is the fare?", "Can you tell me what the fare is?"),
    ],
)
def test_paraphrase_says_the_same_otherwise(text: str, wanted: str) -> None:
    assert variants(perturb.text.paraphrase(), text) == {wanted}


@pytest.mark.parametrize(
    "text",
    [
        "Berlin is the capital of Germany",
        "Tokyo and Japan are far away",
        "see you in Milan, Italy",
        "the mountains near Denver are high",
        "It takes 13 hours to fly from Chicago to Beijing",
        "he was born in Boston",
        "at Narita in Tokyo",
        "an airport in Kuala Lumpur ( KUL )",
        "they speak Polish in Warsaw, as all of the country",
    ],
)
def test_locations_leave_alone_what_holds_of_one_place(text: str) -> None:
    assert variants(perturb.text.locations(), text) == {text}


def test_locations_never_make_two_places_one() -> None:
    found = variants(
        perturb.text.locations(cities=["Paris", "Rome", "Oslo"]), "the flight from Paris to Rome is late"
    )
    assert found <= {"the flight from Oslo to Rome is late", "the flight from Paris to Oslo is late"}
    two = perturb.text.locations(cities=["Paris", "Rome"], countries=["Peru"])
    assert variants(two, "the flight from Paris to Rome is late") == {"the flight from Paris to Rome is late"}
