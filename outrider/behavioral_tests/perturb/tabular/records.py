"""Changes of whole fields: missing and swapped values."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions import Batch
from outrider.assertions.batch.columns import null_column
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, input_column


def missing(*names: str, value: object = None) -> Perturbation:
    """Remove the values of all named fields. Values become null (None, NaN), or ``value``.

    Parameters
    ----------
    value
        Replacement that a sender writes for a missing value, such as -999 or ``""``; None makes nulls.
        Existing nulls are unchanged.

    Raises
    ------
    ValueError
        At creation, without a field; at run time, if ``value`` does not fit a field's type.
    """
    if not names:
        raise ValueError("missing needs at least one field name")

    def perturb(batch: Batch, rng: Rng) -> Batch:  # noqa: ARG001 - a perturbation takes both
        return batch.with_columns({f"inputs.{name}": _left_out(batch, name, value) for name in names})

    return perturb


def _left_out(batch: Batch, name: str, value: object) -> pa.Array:
    array = input_column(batch, name)
    if value is None:
        return null_column(batch.rows, array.type)
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    try:
        sentinel = pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"inputs.{name}: a value that fits {kind} expected, got {value!r}; {error}"
        ) from error
    filled = pa.repeat(sentinel, batch.rows)
    return pc.if_else(array.is_valid(), filled, pa.scalar(None, kind)).cast(array.type)


def swap_columns(first: str, second: str) -> Perturbation:
    """Swap the values of two fields of the same type. Simulates a file read with swapped columns.

    Raises
    ------
    ValueError
        At run time, if their types differ.
    """
    if first == second:
        raise ValueError(f"two fields expected, got {first!r} twice")

    def perturb(batch: Batch, rng: Rng) -> Batch:  # noqa: ARG001
        one, other = input_column(batch, first), input_column(batch, second)
        if not one.type.equals(other.type):
            raise ValueError(
                f"fields of one type expected, got {first}: {one.type} and {second}: {other.type}; cast one"
            )
        return batch.with_columns({f"inputs.{first}": other, f"inputs.{second}": one})

    return perturb


def shuffle(name: str) -> Perturbation:
    """Shuffle a field's values between the records of a batch. The field then carries no information.

    References
    ----------
    Permutation importance: Breiman, "Random Forests", 2001, section 10.
    """

    def perturb(batch: Batch, rng: Rng) -> Batch:
        array = input_column(batch, name)
        rows = np.flatnonzero(~batch.is_null(f"inputs.{name}"))
        source = np.arange(batch.rows)
        order = rng.permutation(len(rows))
        source[rows[order]] = rows[np.roll(order, 1)]  # one cycle: no record keeps its own
        return batch.with_columns({f"inputs.{name}": array.take(pa.array(source))})

    return perturb
