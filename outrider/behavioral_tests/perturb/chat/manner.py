"""Manner of a question: politeness, layout, speaker, language of the answer."""

from collections.abc import Sequence

from outrider.behavioral_tests.lexicons import lexicon
from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import spoken_each

_POLITE = (
    "Please help me with this. {}",
    "Hello! {} Thank you.",
    "{} Thanks in advance.",
    "I would be grateful for your help. {}",
    "{} Thank you very much!",
)
_LAYOUTS = (
    "Question: {}\nAnswer:",
    "### Instruction\n{}\n\n### Response\n",
    "<question>{}</question>",
    "Q: {}\nA:",
    '"""\n{}\n"""',
    "> {}",
    "\n\n{}\n\n",
)
_PEOPLE = ("child", "retired person", "beginner", "non-native speaker of English")


def politeness(name: str = "messages") -> Perturbation:
    """Add polite words around the user's last question."""
    return spoken_each(name, lambda text, draw: _one(_POLITE, draw).format(text))


def layout(name: str = "messages") -> Perturbation:
    """Reformat the user's last question. With headings, tags, quotes or line breaks.

    References
    ----------
    Sclar et al., "Quantifying Language Models' Sensitivity to Spurious Features in Prompt Design", ICLR 2024.
    """
    return spoken_each(name, lambda text, draw: _one(_LAYOUTS, draw).format(text))


def persona(name: str = "messages", *, people: Sequence[str] | None = None) -> Perturbation:
    """Introduce the user before the last question: "I am a nurse.".

    Parameters
    ----------
    people
        Descriptions without article; default: the lexicon ``profession`` and a few others.
    """
    options = tuple(people) if people is not None else (*lexicon("profession"), *_PEOPLE)
    if not options:
        raise ValueError("people needs at least one entry")

    def change(text: str, draw: float) -> str:
        person = _one(options, draw)
        return f"I am {'an' if person[0].lower() in 'aeiou' else 'a'} {person}. {text}"

    return spoken_each(name, change)


def language(name: str = "messages", *, to: str = "German") -> Perturbation:
    """Append a request for an answer in another language."""
    return spoken_each(name, lambda text, _: f"{text} Please answer in {to}.")


def _one(options: Sequence[str], draw: float) -> str:
    return options[int(draw * len(options))]
