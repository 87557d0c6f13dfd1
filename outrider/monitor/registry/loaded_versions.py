"""Shadow models of one model.

The champion's replica and the challengers, loaded, asked and unloaded.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from outrider.assertions import Batch, Predictor
from outrider.monitor.engine.asks import Outputs, Poison
from outrider.monitor.engine.poison import answered_around

log = logging.getLogger("outrider.shadow")
PredictorFactory = Callable[[str, str], Predictor]
"""(model, version) -> what answers for that version."""

FAILED_UNITS_UNTIL_OUT = 3


@dataclass(slots=True)
class Shadow:
    """Loaded version."""

    version: str
    predict: Predictor
    failed_units: int = 0


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
        """Load missing versions and drop unwanted ones; between units only."""
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
        """Outputs of one version, and its poisoned records.

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

        def predict(start: int, stop: int) -> Outputs:
            return shadow.predict(batch if stop - start == batch.rows else batch.slice(start, stop - start))

        outputs, poison, failure = answered_around(predict, batch.rows)
        if poison or failure:
            log.warning(
                "version %s of %s raised on a block: %s", version, self._model, failure or poison[0].detail
            )
        if blame and failure:
            self._failed(shadow, failure)
        elif blame and not poison:
            shadow.failed_units = 0
        return outputs, poison

    def _failed(self, shadow: Shadow, reason: str) -> None:
        """Note a unit without any answer; a version that gives several in a row is not asked again."""
        shadow.failed_units += 1
        if shadow.failed_units >= FAILED_UNITS_UNTIL_OUT:
            self.failures[shadow.version] = reason
            self._loaded.pop(shadow.version, None)
