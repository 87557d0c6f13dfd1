"""Perturbation: its protocol, changes of one column, and combinations.

A perturbation is a function of (batch, rng) that returns a batch of the same rows with changed inputs. It
draws only from the given generator, so equal seeds give equal changes. Changed records are detected by
comparison, so a no-op never counts as a changed case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor, row_hashes, tensor_array, to_tensor

Rng = np.random.Generator
Change = Callable[[NDArray[Any], Rng], NDArray[Any]]
"""Function of (non-null values of a column, rng) that returns changed values of the same shape; it must not
modify its argument."""


class Perturbation(Protocol):
    """Protocol of perturbations: the argument ``perturb=`` of INV and DIR."""

    def __call__(self, batch: Batch, rng: Rng, /) -> Batch:
        """Batch of the same records with changed inputs."""


@dataclass(frozen=True, slots=True)
class Perturbed:
    """Result of a perturbation, and mask (rows,) of the changed records."""

    batch: Batch
    changed: NDArray[np.bool_]


def apply(perturbation: Perturbation, batch: Batch, rng: Rng) -> Perturbed:
    """Run a perturbation and find the records that changed. Other records are "not applicable".

    Raises
    ------
    ValueError
        If the perturbation returns another number of records.
    """
    perturbed = perturbation(batch, rng)
    if perturbed.rows != batch.rows:
        raise ValueError(
            f"a perturbation keeps the records: {batch.rows} rows expected, got {perturbed.rows}"
        )
    changed = np.zeros(batch.rows, dtype=np.bool_)
    for name in perturbed.names:
        if name.startswith("inputs."):
            after = perturbed.arrow(name)
            changed |= differs(batch.arrow(name), after) if batch.has(name) else ~perturbed.is_null(name)
    return Perturbed(perturbed, changed)


def column(name: str, change: Change) -> Perturbation:
    """Perturbation of one input column by a function of all its values.

    Parameters
    ----------
    change
        Function of (values, rng). Values are the non-null ones, shape (n, …); it returns the same shape, in a
        type that fits the column.

    Examples
    --------
    >>> louder = column("text", lambda texts, rng: np.array([text + "!" for text in texts], dtype=object))
    >>> batch = Batch.from_records([{"inputs": {"text": "hello"}}], model="m")
    >>> louder(batch, np.random.default_rng(0)).column("inputs.text").tolist()
    ['hello!']
    """
    full = f"inputs.{name}"

    def perturb(batch: Batch, rng: Rng) -> Batch:
        array = input_column(batch, name)
        null = batch.is_null(full)
        values = batch.tensor(full, null=0) if is_tensor(array.type) else _values(batch, full, array)
        present = values[~null] if null.any() else values
        if len(present) == 0:
            return batch
        changed = np.asarray(change(present, rng))
        if changed.shape != present.shape:
            raise ValueError(f"{full}: shape {present.shape} expected after the change, got {changed.shape}")
        return batch.with_columns({full: _rebuild(full, changed, values, null, array.type)})

    return perturb


def each(name: str, change: Callable[[Any, Rng], Any]) -> Perturbation:
    """Perturbation of one input column by a function of one value.

    The function returns None for a value that cannot be changed.

    Examples
    --------
    >>> politer = each("text", lambda text, rng: None if "please" in text else f"{text}, please")
    >>> batch = Batch.from_records([{"inputs": {"text": "go"}}, {"inputs": {"text": "please go"}}], model="m")
    >>> apply(politer, batch, np.random.default_rng(0)).changed
    array([ True, False])
    """

    def change_all(values: NDArray[Any], rng: Rng) -> NDArray[Any]:
        out = values.copy()
        for row, value in enumerate(values):
            new = change(value, rng)
            if new is not None:
                out[row] = new
        return out

    return column(name, change_all)


def chain(*perturbations: Perturbation) -> Perturbation:
    """Apply perturbations one after the other.

    A record counts as changed if it differs after the last one.

    Examples
    --------
    >>> from outrider.behavioral_tests import perturb
    >>> shouted_typo = perturb.chain(perturb.text.typos(), perturb.text.case(to="upper"))
    """

    def perturb(batch: Batch, rng: Rng) -> Batch:
        for perturbation in perturbations:
            batch = perturbation(batch, rng)
        return batch

    return perturb


def one_of(*perturbations: Perturbation) -> Perturbation:
    """Apply a randomly chosen perturbation to each record.

    If that changes nothing, the next one that does is used.

    Raises
    ------
    ValueError
        If no perturbation is given.
    """
    if not perturbations:
        raise ValueError("one_of needs at least one perturbation")

    def perturb(batch: Batch, rng: Rng) -> Batch:
        if batch.rows == 0:
            return batch
        options = [apply(perturbation, batch, rng) for perturbation in perturbations]
        changed = np.stack([option.changed for option in options])  # (options, rows)
        start = rng.integers(len(options), size=batch.rows)
        order = (np.arange(len(options))[:, None] + start) % len(options)  # (tries, rows)
        first = np.take_along_axis(changed, order, axis=0).argmax(axis=0)
        pick = order[first, np.arange(batch.rows)]
        pool = Batch.concat([option.batch for option in options])
        return pool.take(pick * batch.rows + np.arange(batch.rows))

    return perturb


def where(predicate: Callable[[Batch], NDArray[np.bool_]], perturbation: Perturbation) -> Perturbation:
    """Change only the records that fulfil a condition.

    Other records are not applicable.

    Parameters
    ----------
    predicate
        Function of the batch that returns one bool per record, shape (rows,).
    perturbation
        Perturbation of these records.

    Raises
    ------
    ValueError
        At run time, if the predicate does not return one bool per record.

    Examples
    --------
    >>> older = column("age", lambda ages, rng: ages + 1)
    >>> adults = where(lambda batch: batch.column("inputs.age") >= 18, older)
    >>> batch = Batch.from_records([{"inputs": {"age": 17}}, {"inputs": {"age": 30}}], model="m")
    >>> adults(batch, np.random.default_rng(0)).column("inputs.age").tolist()
    [17, 31]
    """

    def perturb(batch: Batch, rng: Rng) -> Batch:
        chosen = np.asarray(predicate(batch))
        if chosen.shape != (batch.rows,) or chosen.dtype != np.bool_:
            raise ValueError(
                f"where: one bool per record expected, shape ({batch.rows},), "
                f"got {chosen.dtype} of shape {chosen.shape}"
            )
        rows = np.flatnonzero(chosen)
        if len(rows) == 0:
            return batch
        source = np.arange(batch.rows)
        source[rows] = batch.rows + np.arange(len(rows))
        return Batch.concat([batch, perturbation(batch.take(rows), rng)]).take(source)

    return perturb


def input_column(batch: Batch, name: str) -> pa.Array:
    """Arrow column of an input field. Raises KeyError if there is none; the message lists the fields."""
    if not batch.has(f"inputs.{name}"):
        fields = ", ".join(each.removeprefix("inputs.") for each in batch.names if each.startswith("inputs."))
        raise KeyError(f"no input {name!r} to change; the records have: {fields}")
    return batch.arrow(f"inputs.{name}")


def _values(batch: Batch, full: str, array: pa.Array) -> NDArray[Any]:
    if array.null_count and (pa.types.is_integer(array.type) or pa.types.is_boolean(array.type)):
        return batch.column(full, null=0 if pa.types.is_integer(array.type) else False)
    return batch.column(full)


def _rebuild(
    name: str, changed: NDArray[Any], values: NDArray[Any], null: NDArray[np.bool_], kind: pa.DataType
) -> pa.Array:
    """Arrow column of the same type, with nulls at their original rows."""
    full = changed
    if null.any():
        full = values.copy()
        full[~null] = changed
    if is_tensor(kind):
        return tensor_array(full.astype(values.dtype, copy=False), null if null.any() else None)
    try:
        return pa.array(full, mask=null, from_pandas=False).cast(kind)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"{name}: values that fit {kind} expected after the change; {error}") from error


def check_positive(value: float, name: str) -> None:
    """Raise ValueError for a value of 0 or less."""
    if value <= 0:
        raise ValueError(f"{name} must be > 0, got {value}; 0 changes nothing")


def check_share(share: float, what: str) -> None:
    """Raise ValueError for a share outside (0, 1]."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must lie in (0, 1], got {share}; it is the {what}")


def check_order(order: Sequence[int], example: tuple[int, ...]) -> None:
    """Raise ValueError for an order that changes nothing."""
    if sorted(order) != list(range(len(order))) or list(order) == sorted(order):
        raise ValueError(f"order must be channel numbers in another order, such as {example}, got {order}")


def differs(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    """Mask of the rows in which two columns differ, shape (rows,).

    Null equals null, NaN equals NaN.

    Examples
    --------
    >>> differs(pa.array([1.0, None, float("nan")]), pa.array([1.0, None, float("nan")]))
    array([False, False, False])
    >>> differs(pa.array(["a", None]), pa.array(["a", ""]))
    array([False,  True])
    """
    if after is before:
        return np.zeros(len(after), dtype=np.bool_)
    kind = after.type
    if not kind.equals(before.type):
        return _hashes_differ(before, after)
    if is_tensor(kind):
        differing = _tensors_differ(to_tensor(before, "", 0), to_tensor(after, "", 0))
    elif pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_null(kind):
        differing = _hashes_differ(before, after)
    else:
        differing = pc.fill_null(pc.not_equal(before, after), False).to_numpy(zero_copy_only=False)
        if pa.types.is_floating(kind):
            same_nan = pc.and_(pc.is_nan(before), pc.is_nan(after))
            differing = differing & ~pc.fill_null(same_nan, False).to_numpy(zero_copy_only=False)
    if before.null_count or after.null_count:
        nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in (before, after)]
        differing = np.where(nulls[0] | nulls[1], nulls[0] != nulls[1], differing)
    return np.asarray(differing, dtype=np.bool_)


def _hashes_differ(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = row_hashes(before, "") != row_hashes(after, "")
    return found


def _tensors_differ(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    axes = tuple(range(1, before.ndim))
    cells = before != after
    found: NDArray[np.bool_] = cells.any(axis=axes)
    if before.dtype.kind == "f" and found.any():  # NaN differs from itself
        rows = np.flatnonzero(found)
        cells = cells[rows] & ~(np.isnan(before[rows]) & np.isnan(after[rows]))
        found[rows] = cells.any(axis=axes)
    return found
