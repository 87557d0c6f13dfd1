"""Assertions proposed from reference data, each with the rate at which it is expected to fire.

Rules are found on one part of the reference and judged on the other. A proposal is a call of the library with
its parameters: :meth:`Proposal.to_python` is what a person keeps, reads and changes.
"""

import ast
import json
import math
import pprint
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, permutations
from keyword import iskeyword
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.errors import ConfigError

from . import library
from .assertion import Assertion
from .batch import PARTS, Batch
from .checker import severities_of
from .columns import is_tensor
from .library.reading import arrow, earlier, numbers

Kind: TypeAlias = Literal[
    "range", "categories", "nulls", "finite", "transitions", "pairs", "determines", "order"
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
    )
}
MARK = "# Learned: "
"""Opens the comment above an accepted proposal; what stands without it is a person's own."""
FEW_NUMBERS, FEW_WORDS, FEW_IN_PAIRS = 10, 100, 50
"""Distinct values up to which whole numbers, texts, and columns of pair rules are categories."""
EXPECTED = 10.0
"""Records in which independent values would be seen together; only such pairs are worth forbidding."""
NEVER = 1e-3
"""Share of those that may be there all the same: reference data has errors too."""
MOST_PAIRS = 30
IDENTIFIER = "[A-Za-z_][0-9A-Za-z_]*"
FEW_ENTITIES = 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """An assertion that reference data speaks for.

    Attributes
    ----------
    factory, parameters
        Call of the library that makes it; parameters are what JSON can carry.
    support
        Reference records (for ``transitions``: changes) it was learned from.
    held_out, fired
        Records that were held out, and on how many of them it fires.
    why
        What the reference shows, in words.
    """

    kind: Kind
    name: str
    factory: str
    parameters: dict[str, Any]
    support: int
    held_out: int
    fired: int
    why: str

    @property
    def expected_fire_rate(self) -> float:
        """Share of held-out reference records on which it fires."""
        return self.fired / self.held_out if self.held_out else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the expected rate (Wilson, JASA 1927)."""
        if not self.held_out:
            return 0.0, 1.0
        z, n, p = 1.96, self.held_out, self.expected_fire_rate
        middle, scale = p + z * z / (2 * n), 1 + z * z / n
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / scale if self.fired else 0.0, min(1.0, (middle + half) / scale)

    def assertion(self) -> Assertion:
        """The assertion itself."""
        made: Assertion = FACTORIES[self.factory](**self.parameters, name=self.name)
        return made

    def to_python(self) -> str:
        """One assignment with a comment, as :func:`merged` puts it into a file.

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
        # Names of columns come from whoever sends records: no line break may end the comment.
        why = "".join(letter if letter.isprintable() else " " for letter in self.why)
        return f"{MARK}{why} ({self.support:,} records); expected on {rate}.\n{self.name} = {call}"

    def as_dict(self) -> dict[str, Any]:
        """Fields and rates, as JSON can carry them."""
        return asdict(self) | {"expected_fire_rate": self.expected_fire_rate, "interval": list(self.interval)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Proposal":
        """What :meth:`as_dict` gave.

        Raises
        ------
        ConfigError
            If it is none, or names what is no factory of proposals: nothing else is ever called.
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
            found = cls(**{**wanted, **counts, "why": str(wanted["why"])})
            found.assertion()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"proposal {wanted['name']}: {error}") from error
        return found


def learn(
    reference: Batch,
    *,
    max_fire_rate: float = 0.005,
    held_out: float = 0.3,
    min_support: int = 50,
    seed: int = 0,
) -> list[Proposal]:
    """Propose assertions that hold on reference records.

    Ranges and categories of single columns, nulls and NaN, columns that determine or order each other, values
    that exclude each other, and changes of a label that never happen within an entity.

    Parameters
    ----------
    reference
        Records believed to be right; columns of ``inputs``, ``outputs`` and ``label`` are looked at. With 20
        entities or more the held-out part is entities of its own, with fewer it is the later part of the
        records, without any it is drawn at random.
    max_fire_rate
        Proposals that fire on a larger share of the held-out part are dropped.
    held_out
        Share of the reference that is only judged, in (0, 1).
    min_support
        Records that must speak for a rule.

    Returns
    -------
    list
        By kind, then name; empty where the reference has fewer than ``min_support`` records.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> age, sex = rng.integers(18, 70, 2000), rng.choice(["f", "m"], 2000).tolist()
    >>> people = {"inputs.age": age, "inputs.sex": sex}
    >>> for proposal in learn(Batch.from_columns(people, model="m")):
    ...     print(proposal.name, proposal.why, proposal.expected_fire_rate)
    sex_categories inputs.sex is one of 2 values 0.0
    no_null_inputs inputs.age, inputs.sex are never null 0.0
    age_range inputs.age is within 18 to 69 0.0
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie in (0, 1), got {held_out}")
    if reference.rows < 2 * min_support:
        return []
    fitted, rest = _split(reference, held_out, seed)
    rest = rest.take(_in_order(rest))  # a file has no order of arrival: nothing in it is late
    columns = [name for name in fitted.names if name.startswith(("inputs.", "outputs.", "label."))]
    found: list[Proposal] = []
    names: set[str] = set()
    for kind, name, factory, parameters, support, why in _rules(fitted, columns, min_support, seed):
        judge: Assertion = FACTORIES[factory](**parameters, name=name)
        fired = int(np.count_nonzero(severities_of(judge, rest)))
        if fired <= max_fire_rate * rest.rows:
            unique = _unique(name, names)
            found.append(Proposal(kind, unique, factory, parameters, support, rest.rows, fired, why))
    return sorted(found, key=lambda one: (one.kind, one.name))


def merged(text: str, proposals: Sequence[Proposal]) -> str:
    """Source of an assertion file with proposals added, or brought up to date where they stand in it already.

    Raises
    ------
    ConfigError
        If the text is no Python, or a name is taken by something that was not learned.

    Examples
    --------
    >>> age = Proposal("range", "age", "bounds", {"column": "inputs.age", "low": 0}, 99, 99, 0, "at least 0")
    >>> once = merged("", [age])
    >>> merged(once, [age]) == once
    True
    """
    for proposal in proposals:
        text = _with_assignment(text, proposal)
    return _with_imports(text, sorted({proposal.factory for proposal in proposals})) if proposals else text


# ---- rules ----------------------------------------------------------------------------------------------

Rule: TypeAlias = tuple[Kind, str, str, dict[str, Any], int, str]


def _rules(batch: Batch, columns: list[str], least: int, seed: int) -> Iterator[Rule]:
    kinds = {column: _kind(batch, column) for column in columns}
    yield from _present(batch, columns)
    numeric = [column for column in columns if kinds[column] == "number"]
    grouped = {column: _values(batch, column) for column in columns if kinds[column] == "category"}
    for column in numeric:
        yield from _range(batch, column, least)
    for column, (_, known) in grouped.items():
        present = [value for value in known if value is not None]
        why = f"{column} is one of {len(present)} values"
        parameters = {"column": column, "allowed": present}
        yield "categories", f"{_word(column)}_categories", "categories", parameters, batch.rows, why
    yield from _pairs(
        {name: found for name, found in grouped.items() if len(found[1]) <= FEW_IN_PAIRS}, least
    )
    yield from _orders(batch, numeric, least, seed)
    for column in grouped:
        if not column.startswith("inputs."):
            yield from _transitions(batch, column, least)


def _kind(batch: Batch, column: str) -> Literal["number", "category", "other"]:
    found = arrow(batch, column)
    kind = found.type
    if pa.types.is_boolean(kind):
        return "category"
    distinct = 0 if is_tensor(kind) or pa.types.is_nested(kind) else found.drop_null().unique()
    size = 0 if isinstance(distinct, int) else len(distinct)
    if pa.types.is_integer(kind):
        few = FEW_IN_PAIRS if not column.startswith("inputs.") else FEW_NUMBERS
        return "category" if size <= few else "number"
    if pa.types.is_floating(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "category" if 0 < size <= FEW_WORDS and size * 10 <= batch.rows else "other"
    return "other"


def _values(batch: Batch, column: str) -> tuple[NDArray[np.int64], list[Any]]:
    """Code of every value and the sorted values; None, where there are nulls, is the last."""
    found = arrow(batch, column).dictionary_encode()
    known = found.dictionary.to_pylist()
    order = sorted(range(len(known)), key=lambda index: (str(type(known[index])), known[index]))
    rank = np.zeros(len(known) + 1, dtype=np.int64)
    rank[order] = np.arange(len(known))
    rank[-1] = len(known)
    code = rank[found.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]
    return code, [known[index] for index in order] + ([None] if found.null_count else [])


def _present(batch: Batch, columns: list[str]) -> Iterator[Rule]:
    whole = [column for column in columns if not library.required([column]).severities(batch).any()]
    for part in ("inputs", "outputs", "label"):
        named = [column for column in whole if column.startswith(f"{part}.")]
        if named:
            why = f"{', '.join(named)} {'are' if len(named) > 1 else 'is'} never null"
            yield "nulls", f"no_null_{part}", "required", {"columns": named}, batch.rows, why
    floats = [column for column in columns if _has_floats(arrow(batch, column).type)]
    clean = [column for column in floats if not library.finite([column]).severities(batch).any()]
    if clean:
        why = f"{', '.join(clean)} {'hold' if len(clean) > 1 else 'holds'} no NaN and no infinity"
        yield "finite", "all_finite", "finite", {"columns": clean}, batch.rows, why


def _has_floats(kind: Any) -> bool:
    inner = kind.value_type if is_tensor(kind) or pa.types.is_list(kind) else kind
    return bool(pa.types.is_floating(inner))


def _range(batch: Batch, column: str, least: int) -> Iterator[Rule]:
    value = numbers(batch, column)
    value = value[np.isfinite(value)]
    if len(value) < least or value.min() == value.max():
        return  # one and the same value says nothing of the next
    whole = pa.types.is_integer(arrow(batch, column).type)
    if whole and len(np.unique(value)) > 0.99 * len(value):
        return  # numbers that never come twice are names, and the next one is new
    low, high = (int(edge) if whole else float(edge) for edge in (value.min(), value.max()))
    parameters = {"column": column, "low": low, "high": high}
    why = f"{column} is within {low:.6g} to {high:.6g}"
    yield "range", f"{_word(column)}_range", "bounds", parameters, len(value), why


def _pairs(grouped: Mapping[str, tuple[NDArray[np.int64], list[Any]]], least: int) -> Iterator[Rule]:
    ranked: list[tuple[float, Rule]] = []
    for first, second in combinations(grouped, 2):
        (left, lefts), (right, rights) = grouped[first], grouped[second]
        counts = np.bincount(left * len(rights) + right, minlength=len(lefts) * len(rights))
        table = counts.reshape(len(lefts), len(rights)).astype(np.float64)
        expected = table.sum(axis=1)[:, None] * table.sum(axis=0) / len(left)
        never = (expected >= EXPECTED) & (table <= NEVER * expected)
        if not never.any():
            continue
        rule = (
            _determined(first, second, table, lefts, rights, least)
            or _determined(second, first, table.T, rights, lefts, least)
            or _excluded(first, second, np.where(never, expected, 0.0), lefts, rights, len(left))
        )
        ranked.append((float(expected[never].sum()), rule))
    ranked.sort(key=lambda one: -one[0])
    yield from (rule for _, rule in ranked[:MOST_PAIRS])


def _determined(
    first: str, second: str, table: NDArray[np.float64], firsts: list[Any], seconds: list[Any], least: int
) -> Rule | None:
    """Rule that ``first`` determines ``second``, where every frequent value of it goes with one only."""
    rows = table.sum(axis=1)
    frequent = [row for row in np.flatnonzero(rows >= least) if firsts[row] is not None]
    top = table.argmax(axis=1)
    sure = all(rows[row] - table[row, top[row]] <= NEVER * rows[row] for row in frequent)
    covered = rows[frequent].sum() >= 0.99 * rows.sum()
    if not sure or not covered or len({top[row] for row in frequent}) < 2:
        return None
    mapping = [[firsts[row], seconds[top[row]]] for row in frequent]
    name, why = f"{_word(first)}_determines_{_word(second)}", f"{first} says what {second} is"
    parameters = {"first": first, "second": second, "mapping": mapping}
    return "determines", name, "determines", parameters, int(rows[frequent].sum()), why


def _excluded(
    first: str, second: str, missed: NDArray[np.float64], firsts: list[Any], seconds: list[Any], rows: int
) -> Rule:
    """Rule that pairs with ``missed`` > 0 (records in which they would meet by chance) never meet."""
    pairs = [[firsts[a], seconds[b]] for a, b in np.argwhere(missed > 0)]
    worst = np.unravel_index(np.argmax(missed), missed.shape)
    many = "1 pair never meets" if len(pairs) == 1 else f"{len(pairs)} pairs never meet"
    why = f"{first} and {second}: {many}, as {firsts[worst[0]]!r} with {seconds[worst[1]]!r}"
    parameters = {"first": first, "second": second, "pairs": pairs}
    return "pairs", f"{_word(first)}_against_{_word(second)}", "never_together", parameters, rows, why


def _orders(batch: Batch, numeric: list[str], least: int, seed: int) -> Iterator[Rule]:
    values = {column: numbers(batch, column) for column in numeric}
    rng = np.random.default_rng(seed)
    for lower, upper in permutations(numeric, 2):
        both = np.isfinite(values[lower]) & np.isfinite(values[upper])
        small, large = values[lower][both], values[upper][both]
        if len(small) < least or (small > large).mean() > NEVER or (small == large).all():
            continue
        # In another order of the records it must not hold: else the two ranges say it already.
        if (rng.permutation(small) > large).mean() < 0.05:
            continue
        parameters = {"lower": lower, "upper": upper}
        name = f"{_word(lower)}_at_most_{_word(upper)}"
        yield "order", name, "ordered", parameters, len(small), f"{lower} never exceeds {upper}"


def _transitions(batch: Batch, column: str, least: int) -> Iterator[Rule]:
    if arrow(batch, "entity").null_count == batch.rows:
        return
    view = batch.take(_in_order(batch))
    code, known = _values(view, column)
    before = earlier(view, "entity", 1)[:, 0]
    changed = (before >= 0) & (code != code[before])
    present = np.array([value is not None for value in known])
    changed &= present[code] & present[code[before]]
    if changed.sum() < least:
        return
    table = np.zeros((len(known), len(known)))
    np.add.at(table, (code[before[changed]], code[changed]), 1.0)
    expected = table.sum(axis=1)[:, None] * table.sum(axis=0) / table.sum()
    np.fill_diagonal(expected, 0.0)
    never = (expected >= EXPECTED) & (table <= NEVER * expected)
    if not never.any():
        return
    allowed = [[known[a], known[b]] for a, b in np.argwhere(table > 0) if not never[a, b]]
    worst = np.unravel_index(np.argmax(np.where(never, expected, 0)), never.shape)
    told = f"{known[worst[0]]!r} to {known[worst[1]]!r}"
    why = f"{column} changes in {len(allowed)} ways within an entity, never from {told}"
    parameters = {"column": column, "allowed": allowed}
    yield (
        "transitions",
        f"{_word(column)}_transitions",
        "unseen_transition",
        parameters,
        int(changed.sum()),
        why,
    )


# ---- splitting ------------------------------------------------------------------------------------------


def _split(batch: Batch, share: float, seed: int) -> tuple[Batch, Batch]:
    """The part rules are found on, and the part they are judged on."""
    found = arrow(batch, "entity")
    rng = np.random.default_rng(seed)
    if found.null_count == batch.rows:
        held = np.zeros(batch.rows, dtype=np.bool_)
        held[rng.permutation(batch.rows)[: max(1, int(batch.rows * share))]] = True
        return batch.take(~held), batch.take(held)
    entity = found.dictionary_encode()
    if len(entity.dictionary) < FEW_ENTITIES:
        order = np.argsort(batch.column("ts"), kind="stable")
        cut = batch.rows - max(1, int(batch.rows * share))
        return batch.take(np.sort(order[:cut])), batch.take(np.sort(order[cut:]))
    code = entity.indices.fill_null(len(entity.dictionary)).to_numpy(zero_copy_only=False)
    chosen = rng.permutation(len(entity.dictionary) + 1)[: max(1, int(len(entity.dictionary) * share))]
    held = np.isin(code, chosen)
    return batch.take(~held), batch.take(held)


def _in_order(batch: Batch) -> NDArray[np.intp]:
    """Row order by entity, then time."""
    entity = arrow(batch, "entity").dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order: NDArray[np.intp] = np.lexsort((batch.column("ts"), entity))
    return order


# ---- source text ----------------------------------------------------------------------------------------


def _call(factory: str, parameters: Mapping[str, Any]) -> str:
    shown = {name: _literal(value) for name, value in parameters.items()}
    line = f"{factory}({', '.join(f'{name}={text}' for name, text in shown.items())})"
    if len(line) <= 90 and "\n" not in line:
        return line
    body = "".join(f"    {name}={_indented(text)},\n" for name, text in shown.items())
    return f"{factory}(\n{body})"


def _literal(value: Any) -> str:
    """Python text of a parameter; pairs as tuples, texts in double quotes where both would do."""
    if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
        value = [tuple(item) for item in value]
    text = pprint.pformat(value, width=96, compact=True, sort_dicts=False)
    return text.replace("'", '"') if '"' not in text and "\\" not in text else text


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _with_assignment(text: str, proposal: Proposal) -> str:
    wanted = proposal.to_python()
    tree = _parsed(text)
    lines = text.splitlines()
    for node in tree.body:
        bound = {getattr(node, "name", None)}
        if isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        if proposal.name not in bound:
            continue
        start = node.lineno - 2  # the comment above
        if not isinstance(node, ast.Assign) or start < 0 or not lines[start].startswith(MARK):
            raise ConfigError(
                f"{proposal.name} on line {node.lineno} was not learned: rename it, or the proposal"
            )
        lines[start : node.end_lineno] = wanted.splitlines()
        return "\n".join(lines) + "\n"
    return f"{text.rstrip()}\n\n{wanted}\n".lstrip("\n")


def _with_imports(text: str, factories: Sequence[str]) -> str:
    tree = _parsed(text)
    module = library.__name__
    lines = text.splitlines()
    have: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == module:
            have |= {alias.name for alias in node.names if alias.asname is None}
    missing = sorted(set(factories) - have)
    if not missing:
        return text
    for node in tree.body:
        plain = isinstance(node, ast.ImportFrom) and node.module == module
        if plain and all(alias.asname is None for alias in node.names):  # type: ignore[attr-defined]
            names = sorted({alias.name for alias in node.names} | set(missing))  # type: ignore[attr-defined]
            lines[node.lineno - 1 : node.end_lineno] = _import(module, names)
            return "\n".join(lines) + "\n"
    return "\n".join(_inserted(lines, tree, _import(module, missing))) + "\n"


def _import(module: str, names: Sequence[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    return (
        [line] if len(line) <= 100 else [f"from {module} import (", *(f"    {name}," for name in names), ")"]
    )


def _inserted(lines: list[str], tree: ast.Module, wanted: list[str]) -> list[str]:
    """Behind the docstring and the imports that are there."""
    place = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        place = node.end_lineno or 0
    gap = [""] if place < len(lines) and lines[place].strip() else []
    lead = [""] if place and not isinstance(tree.body[0], ast.Import | ast.ImportFrom) else []
    return [*lines[:place], *lead, *wanted, *gap, *lines[place:]]


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"Python expected in the assertion file: {error}") from error


def _word(column: str) -> str:
    """Short name of a column as part of an identifier; a label keeps its part, lest it takes an output's."""
    part, _, field = column.partition(".")
    word = re.sub(r"[^0-9A-Za-z_]", "_", field if part in PARTS[:2] else f"{part}_{field}")
    return f"c{word}" if word[:1].isdigit() else word


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken or candidate in FACTORIES:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
