"""Shadow models of one model: the champion's replica and the challengers, loaded, asked and unloaded."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Predictor
from outrider.assertions.columns import from_values

log = logging.getLogger("outrider.shadow")
Outputs = Mapping[str, NDArray[Any]]
PredictorFactory = Callable[[str, str], Predictor]
"""(model, version) -> what answers for that version."""

FAILED_UNITS_UNTIL_OUT = 3


@dataclass(slots=True)
class Shadow:
    """One loaded version."""

    version: str
    predict: Predictor
    failed_units: int = 0


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that makes the model raise whatever company it is in."""

    row: int
    detail: str


class ShadowModels:
    """The versions of one model that run beside production.

    Parameters
    ----------
    load
        Builds the predictor of a version; it may raise, which is told in ``failures``.
    """

    def __init__(self, model: str, load: PredictorFactory) -> None:
        self._model = model
        self._load = load
        self._loaded: dict[str, Shadow] = {}
        self.champion: str | None = None
        self.failures: dict[str, str] = {}

    @property
    def versions(self) -> list[str]:
        """Loaded versions."""
        return sorted(self._loaded)

    def keep(self, champion: str | None, challengers: list[str]) -> None:
        """Load what is missing and drop what is not wanted; happens between units only."""
        wanted = [*([champion] if champion else []), *challengers]
        self.champion = champion
        for version in set(self._loaded) - set(wanted):
            del self._loaded[version]
        for version in wanted:
            if version in self._loaded or version in self.failures:
                continue
            try:
                self._loaded[version] = Shadow(version, self._load(self._model, version))
            except Exception as error:
                log.exception("version %s of %s cannot be loaded", version, self._model)
                self.failures[version] = f"{type(error).__name__}: {error}"

    def answer(
        self, version: str, batch: Batch, *, blame: bool = True
    ) -> tuple[Outputs | None, list[Poison]]:
        """Outputs of one version for every record, and the records that it cannot take.

        A raise is narrowed down by halving: records that raise alone are poison and answered with nothing,
        the others are answered. When every record raises it is the model that fails: None.

        Parameters
        ----------
        blame
            Whether a failure counts against the model; not when a test made the records up.
        """
        shadow = self._loaded.get(version)
        if shadow is None or not batch.rows:
            return None, []
        try:
            outputs = checked(shadow.predict(batch), batch.rows)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; the block is halved
            log.warning("version %s of %s raised on a block: %r", version, self._model, error)
            joined, poison, reason = self._bisect(shadow, batch)
            if blame and reason is not None:
                self._failed(shadow, reason)
            return joined, poison
        if blame:
            shadow.failed_units = 0
        return outputs, []

    def _bisect(self, shadow: Shadow, batch: Batch) -> tuple[Outputs | None, list[Poison], str | None]:
        """What can be answered and what is poison; or why nothing can."""
        answered: list[tuple[int, int, Outputs]] = []
        poison: list[Poison] = []
        pending = [(0, batch.rows)]
        while pending:
            start, stop = pending.pop()
            if len(poison) > batch.rows // 2 and not answered:
                break  # not a poisoned record: the model itself is broken
            try:
                part = checked(shadow.predict(batch.slice(start, stop - start)), stop - start)
            except Exception as error:  # noqa: BLE001 - user code may raise anything; the record keeps the reason
                if stop - start == 1:
                    poison.append(Poison(start, f"{type(error).__name__}: {error}"))
                else:
                    middle = (start + stop) // 2
                    pending += [(middle, stop), (start, middle)]
            else:
                answered.append((start, stop, part))
        if not answered:
            return None, [], poison[0].detail if poison else "raises on every record"
        try:
            return checked(_join(answered, batch.rows), batch.rows), poison, None
        except Exception as error:  # noqa: BLE001 - answers that differ from call to call in name or shape
            return None, [], f"{type(error).__name__}: {error}"

    def _failed(self, shadow: Shadow, reason: str) -> None:
        """Note a unit without any answer; a version that gives several in a row is not asked again."""
        shadow.failed_units += 1
        if shadow.failed_units >= FAILED_UNITS_UNTIL_OUT:
            self.failures[shadow.version] = reason
            self._loaded.pop(shadow.version, None)


def checked(outputs: Outputs, rows: int) -> Outputs:
    """Answers as arrays, one value per record and output, of types that a column can hold."""
    arrays = {name: np.asarray(values) for name, values in outputs.items()}
    for name, values in arrays.items():
        if not name or values.shape[:1] != (rows,):
            raise ValueError(f"outputs.{name}: first dimension {rows} expected, got shape {values.shape}")
        from_values(values)
    return arrays


def _join(answered: list[tuple[int, int, Outputs]], rows: int) -> Outputs:
    """Parts in row order; unanswered rows repeat another's answer and are dead-lettered by the caller."""
    source = np.zeros(rows, dtype=np.intp)
    at = 0
    for start, stop, _ in answered:
        source[start:stop] = np.arange(at, at + stop - start)
        at += stop - start
    names = answered[0][2].keys()
    if any(part.keys() != names for _, _, part in answered):
        raise ValueError("the model answers with other outputs from call to call")
    return {name: np.concatenate([part[name] for _, _, part in answered])[source] for name in names}
