"""Proposal: a library call with its parameters and expected fire rate."""

import json
import pprint
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from keyword import iskeyword
from typing import Any, Literal, TypeAlias

from outrider.assertions import library
from outrider.assertions.assertion import Assertion
from outrider.assertions.statistics.wilson import wilson_interval
from outrider.errors import ConfigError

Kind: TypeAlias = Literal[
    "range",
    "categories",
    "nulls",
    "finite",
    "transitions",
    "pairs",
    "determines",
    "order",
    "resolution",
    "units",
    "stuck",
    "jumps",
    "swaps",
]
FACTORIES = {
    name: getattr(library, name)
    for name in (
        "bounds",
        "categories",
        "required",
        "finite",
        "unseen_transition",
        "never_together",
        "determines",
        "ordered",
        "multiple_of",
        "unit_mixup",
        "stuck_value",
        "value_jump",
        "swapped",
    )
}
MARK = "# Learned: "
"""Begins the comment above an accepted proposal; assertions without it are hand-written."""
IDENTIFIER = "[A-Za-z_][0-9A-Za-z_]*"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Assertion proposed from reference data.

    Attributes
    ----------
    factory, parameters
        Library function that makes the assertion, and its arguments, which JSON can carry.
    support
        Number of reference records (for ``transitions``: changes) that it was learned from.
    held_out, fired
        Number of held-out records, and of those on which the assertion fires.
    why
        Summary of the reference data in words.
    drift
        Columns of the rule that drift within the reference, with the distance in [0, 1]: the rule may not
        hold in future.
    effect
        Design effect: held-out records that count as one, as firing records share entities and days or hours.
    stretch
        Time span to which the interval is limited; empty if there are enough days.
    """

    kind: Kind
    name: str
    factory: str
    parameters: dict[str, Any]
    support: int
    held_out: int
    fired: int
    why: str
    drift: dict[str, float] = field(default_factory=dict)
    effect: float = 1.0
    stretch: str = ""

    @property
    def expected_fire_rate(self) -> float:
        """Share of held-out reference records that fire."""
        return self.fired / self.held_out if self.held_out else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the expected fire rate."""
        return wilson_interval(self.fired / self.effect, self.held_out / self.effect)

    @property
    def moved(self) -> str:
        """Columns that drift and their distances, as text; empty if none."""
        return ", ".join(f"{column} by {distance:.2f}" for column, distance in self.drift.items())

    def assertion(self) -> Assertion:
        """The proposed assertion."""
        made: Assertion = FACTORIES[self.factory](**self.parameters, name=self.name)
        return made

    def to_python(self) -> str:
        """Assignment with a comment, which :func:`merged` inserts into a file.

        Examples
        --------
        >>> parameters = {"column": "inputs.age", "low": 17, "high": 90}
        >>> print(Proposal("range", "age_range", "bounds", parameters, 7000, 3000, 1, "17 to 90").to_python())
        # Learned: 17 to 90 (7,000 records); expected on 0.033 % of records (0.0059 to 0.19 %).
        age_range = bounds(column="inputs.age", low=17, high=90, name="age_range")
        """
        low, high = (f"{100 * bound:.2g}" for bound in self.interval)
        rate = f"{100 * self.expected_fire_rate:.2g} % of records ({low} to {high} %)"
        call = _call(self.factory, {**self.parameters, "name": self.name})
        held = f"; holds for {self.stretch}" if self.stretch else ""
        comment = f"{MARK}{self.why} ({self.support:,} records); expected on {rate}{held}."
        if self.drift:
            comment += f" Drifts: {self.moved}."
        # Senders choose the names of columns: no line break may end the comment.
        comment = "".join(letter if letter.isprintable() else " " for letter in comment)
        return f"{comment}\n{self.name} = {call}"

    def as_dict(self) -> dict[str, Any]:
        """Fields and rates that JSON can carry."""
        return asdict(self) | {"expected_fire_rate": self.expected_fire_rate, "interval": list(self.interval)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Proposal":
        """Inverse of :meth:`as_dict`.

        Raises
        ------
        ConfigError
            If fields are missing, or the factory is not one that proposals use: no other function is ever
            called.
        """
        wanted: dict[str, Any] = {name: fields.get(name) for name in cls.__dataclass_fields__}
        name = str(wanted["name"])
        if wanted["factory"] not in FACTORIES or not re.fullmatch(IDENTIFIER, name) or iskeyword(name):
            raise ConfigError(
                f"a proposal of `outrider assertions learn` expected, got factory {wanted['factory']!r} and "
                f"name {wanted['name']!r}"
            )
        try:
            json.dumps(wanted["parameters"], allow_nan=False)  # infinities have no name in a file
            counts = {name: int(wanted[name]) for name in ("support", "held_out", "fired")}
            drift = {str(column): float(by) for column, by in (wanted["drift"] or {}).items()}
            effect, words = float(wanted["effect"]), {name: str(wanted[name]) for name in ("why", "stretch")}
            if not effect >= 1.0:
                raise ValueError(f"effect must be >= 1, got {effect}")
            found = cls(**{**wanted, **counts, **words, "drift": drift, "effect": effect})
            found.assertion()
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"proposal {wanted['name']}: {error}") from error
        return found


def _call(factory: str, parameters: Mapping[str, Any]) -> str:
    shown = {name: _literal(value) for name, value in parameters.items()}
    line = f"{factory}({', '.join(f'{name}={text}' for name, text in shown.items())})"
    if len(line) <= 90 and "\n" not in line:
        return line
    body = "".join(f"    {name}={_indented(text)},\n" for name, text in shown.items())
    return f"{factory}(\n{body})"


def _literal(value: Any) -> str:
    """Python source of a parameter; pairs as tuples, texts preferably in double quotes."""
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        value = [tuple(item) for item in value]
    text = pprint.pformat(value, width=96, compact=True, sort_dicts=False)
    return text.replace("'", '"') if '"' not in text and "\\" not in text else text


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")
