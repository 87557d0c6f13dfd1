"""Changes of categories: another value, or another protected attribute.

The latter tests counterfactual fairness.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions import Batch
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, input_column

Swaps = Mapping[Any, Any]


def swap(name: str, *, values: Sequence[object] | Swaps) -> Perturbation:
    """Replace a category by another one.

    Parameters
    ----------
    values
        Categories to draw from (each record gets a different one), or a mapping from category to category,
        such as ``{"female": "male", "male": "female"}``; categories outside it are unchanged.

    Raises
    ------
    ValueError
        At creation, if there is nothing to swap; at run time, if a category does not fit the column.
    """
    if isinstance(values, Mapping):
        return flip(name, values)
    options = list(dict.fromkeys(values))
    if len(options) < 2:
        raise ValueError(f"at least two categories expected, got {list(values)!r}; there is nothing to swap")

    def perturb(batch: Batch, rng: Rng) -> Batch:
        array = input_column(batch, name)
        choices = _of_type(name, options, array.type)
        codes = {value: code for code, value in enumerate(choices.to_pylist())}
        coded = _decoded(array).dictionary_encode()
        at = np.array([codes.get(value, -1) for value in coded.dictionary.to_pylist()] + [-1])
        own = at[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        draws = rng.random(batch.rows)
        pick = (draws * np.where(own < 0, len(options), len(options) - 1)).astype(np.int64)
        pick += (own >= 0) & (pick >= own)
        taken = choices.take(pa.array(pick, mask=batch.is_null(f"inputs.{name}")))
        return batch.with_columns({f"inputs.{name}": taken.cast(array.type)})

    return perturb


def flip(name: str, values: Swaps, *, with_: Mapping[str, Swaps] | None = None) -> Perturbation:
    """Flip a protected attribute and its proxies.

    All other fields are unchanged. A model whose answer changes treats that person differently because of the
    attribute (counterfactual fairness with respect to the named columns; other consequences of the attribute
    are not changed).

    Parameters
    ----------
    values
        Mapping from value to value. Records with any other value, or none, are not applicable.
    with_
        Mapping from value to value by proxy column; applied only to records whose attribute was flipped,
        other values are unchanged.

    Raises
    ------
    ValueError
        At creation, if the mapping changes nothing; at run time, if a value does not fit its column.

    References
    ----------
    Kusner et al., "Counterfactual Fairness", NeurIPS 2017.

    Examples
    --------
    >>> sexes = {"Male": "Female", "Female": "Male"}
    >>> other_sex = flip("sex", sexes, with_={"relationship": {"Husband": "Wife", "Wife": "Husband"}})
    >>> person = {"sex": "Male", "relationship": "Husband", "age": 41}
    >>> batch = Batch.from_records([{"inputs": person}], model="m")
    >>> other_sex(batch, np.random.default_rng(0)).to_records()[0]["inputs"]
    {'age': 41, 'relationship': 'Wife', 'sex': 'Female'}
    """
    proxies = dict(with_ or {})
    for field, swaps in ({name: values} | proxies).items():
        if not any(old != new for old, new in swaps.items()):
            raise ValueError(f"{field}: a mapping from value to another value expected, got {dict(swaps)!r}")

    def perturb(batch: Batch, rng: Rng) -> Batch:  # noqa: ARG001 - a perturbation takes both
        flipped = _touched(input_column(batch, name), values)
        columns = {f"inputs.{name}": _mapped(name, input_column(batch, name), values, flipped)}
        for proxy, swaps in proxies.items():
            columns[f"inputs.{proxy}"] = _mapped(proxy, input_column(batch, proxy), swaps, flipped)
        return batch.with_columns(columns)

    return perturb


def _touched(array: pa.Array, values: Swaps) -> Any:
    """Mask of the rows whose value is replaced, shape (rows,)."""
    coded = _decoded(array).dictionary_encode()
    known = [value in values and values[value] != value for value in coded.dictionary.to_pylist()]
    return np.array([*known, False])[coded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)]


def _mapped(name: str, array: pa.Array, values: Swaps, rows: Any) -> pa.Array:
    """Column with values mapped in the given rows; one look-up per distinct value."""
    coded = _decoded(array).dictionary_encode()
    old = coded.dictionary
    new = _of_type(name, [values.get(value, value) for value in old.to_pylist()], old.type)
    both = pa.concat_arrays([old, new])
    index = coded.indices.cast(pa.int64())
    at = index.fill_null(0).to_numpy(zero_copy_only=False) + np.where(rows, len(old), 0)
    return both.take(pa.array(at, mask=array.is_null().to_numpy(zero_copy_only=False))).cast(array.type)


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _of_type(name: str, values: list[Any], kind: pa.DataType) -> pa.Array:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"inputs.{name}: values that fit {kind} expected, got {values!r}; {error}"
        ) from error
