"""Learned assertions: surprise of an observation under validated data."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import NoneType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.findings import Findings
from outrider.assertions.windows.window import Window

Floats = NDArray[np.float64]
Feature = str | Callable[[Batch], Any]
GRID = 256
FEW = 30
"""Minimum number of validated observations of a class; smaller classes share one distribution."""
WORST = 50.0
"""Cap of a feature's surprise: a single extreme value proves an error only once."""
WIDTH = 0.9
"""Factor on Silverman's bandwidth; like ``WORST`` chosen by leave-one-sequence-out validation."""
EVERYONE = ""


@dataclass(frozen=True, slots=True)
class Density:
    """Density of one feature's values.

    Attributes
    ----------
    kind
        ``numeric``: ``log_likelihood`` on the even grid from ``low`` to ``high``; ``category`` (booleans
        too): log likelihood of each of ``values``, the last entry for all others.
    width
        Bandwidth of the kernel; outside the grid the log likelihood falls by one per width.
    typical
        Median negative log likelihood of the validated values.
    """

    kind: Literal["numeric", "category"]
    log_likelihood: Sequence[float]
    typical: float
    low: float = 0.0
    high: float = 0.0
    width: float = 1.0
    values: Sequence[str] = ()

    @classmethod
    def fit(cls, values: NDArray[Any]) -> "Density":
        """Density fitted to validated values, shape (n,). Nulls and NaN are left out."""
        if values.dtype.kind in "iuf":
            return cls._numeric(values.astype(np.float64))
        return cls._category(values)

    @classmethod
    def _numeric(cls, values: Floats) -> "Density":
        known = values[np.isfinite(values)]
        if not len(known):
            return cls("category", (0.0,), 0.0)
        low, high = np.quantile(known, (0.25, 0.75))
        spread = min(float(np.std(known)), float(high - low) / 1.349) or float(np.std(known))
        width = max(WIDTH * spread * len(known) ** -0.2, 1e-3 * float(np.ptp(known)), 1e-9)
        start, stop = float(known.min()) - 3 * width, float(known.max()) + 3 * width
        counts, edges = np.histogram(known, bins=GRID, range=(start, stop))
        step = (stop - start) / GRID
        reach = max(1, min(GRID, round(4 * width / step)))
        kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
        smooth = np.convolve(counts, kernel / kernel.sum(), mode="full")[reach:-reach]
        # One imagined observation anywhere on the grid: what was never seen is unlikely, not impossible.
        density = (smooth / step + 1 / (stop - start)) / (len(known) + 1)
        centres = (edges[:-1] + edges[1:]) / 2
        found = cls("numeric", np.log(density).tolist(), 0.0, float(centres[0]), float(centres[-1]), width)
        return found._with_typical(known)

    @classmethod
    def _category(cls, values: NDArray[Any]) -> "Density":
        texts = np.array([str(value) for value in values.tolist() if value is not None], dtype=object)
        names, counts = np.unique(texts, return_counts=True) if len(texts) else (texts, np.zeros(0))
        likely = np.r_[counts + 1, 1] / (counts.sum() + len(names) + 1)
        found = cls("category", np.log(likely).tolist(), 0.0, values=[str(name) for name in names])
        return found._with_typical(values)

    def _with_typical(self, values: NDArray[Any]) -> "Density":
        surprise = self.surprise(values)
        typical = float(np.median(surprise)) if len(surprise) else 0.0
        return Density(**(asdict(self) | {"typical": typical}))

    def surprise(self, values: NDArray[Any]) -> Floats:
        """Negative log likelihood less ``typical``, shape (n,). 0 for unknown values."""
        likelihood = np.asarray(self.log_likelihood)
        if self.kind == "category":
            places = {name: place for place, name in enumerate(self.values)}
            at = [places.get(str(value), len(places)) for value in values.tolist()]
            known = np.array([value is not None for value in values.tolist()], dtype=np.bool_)
            raw = -likelihood[np.array(at, dtype=np.int64)]
        else:
            numbers = values.astype(np.float64)
            known = ~np.isnan(numbers)  # infinite is as unlikely as can be, not unknown
            clean = np.where(known, numbers, self.low)
            outside = np.maximum(self.low - clean, 0) + np.maximum(clean - self.high, 0)
            grid = np.linspace(self.low, self.high, len(likelihood))
            raw = -np.interp(clean, grid, likelihood) + outside / self.width
        return np.where(known, np.minimum(raw - self.typical, WORST), 0.0)


@dataclass(frozen=True)
class Observations:
    """Distributions of validated observations by class.

    Made by :func:`learn_observations`.

    Attributes
    ----------
    densities
        Density by class (``""``: all classes), then by feature.
    threshold
        Score above which an observation fires: the chosen quantile of the validated ones.
    """

    features: Mapping[str, Feature]
    densities: Mapping[str, Mapping[str, Density]]
    threshold: float
    by: str | None = None
    explode: str | None = None
    quantile: float = 0.99
    window: Window | None = None

    def surprises(self, batch: Batch) -> Floats:
        """Surprise of each feature of each observation, shape (observations, features).

        Observations are the rows of ``batch``, or of its exploded list.
        """
        observed = batch if self.explode is None else batch.explode(self.explode)
        found = np.zeros((observed.rows, len(self.features)))
        columns = [_values(observed, feature) for feature in self.features.values()]
        for one, rows in _classes(observed, self.by, self.densities):
            for place, name in enumerate(self.features):
                found[rows, place] = self.densities[one][name].surprise(columns[place][rows])
        return found

    def scores(self, batch: Batch) -> Floats:
        """Mean surprise of each observation; 0 is typical, shape (observations,)."""
        mean: Floats = self.surprises(batch).mean(axis=1)
        return mean

    def assertion(self, name: str = "unlikely_observation", *, level: Level = "warning") -> Assertion:
        """Assertion that fires above the threshold. Its evidence names the least likely feature."""
        text = (
            f"Less likely than {self.quantile:.3%} of validated observations by {', '.join(self.features)}."
        )
        return assertion(name=name, level=level, description=text, window=self.window)(_Unlikely(self))

    def to_json(self) -> str:
        """JSON text of the fitted distributions.

        Features that are functions are stored by name only.
        """
        saved = {
            "features": {name: one if isinstance(one, str) else None for name, one in self.features.items()},
            "densities": {
                one: {name: asdict(density) for name, density in found.items()}
                for one, found in self.densities.items()
            },
            "threshold": self.threshold,
            "by": self.by,
            "explode": self.explode,
            "quantile": self.quantile,
            "window": None if self.window is None else asdict(self.window),
        }
        return json.dumps(saved)

    @classmethod
    def from_json(
        cls, text: str, features: Mapping[str, Callable[[Batch], Any]] | None = None
    ) -> "Observations":
        """Observations from the text of :meth:`to_json`.

        ``features`` maps names to the functions among the features.

        Raises
        ------
        ValueError
            If a feature was a function and is not given.
        """
        saved = json.loads(text)
        functions = features or {}
        columns: dict[str, str | None] = saved["features"]
        missing = [name for name, one in columns.items() if one is None and name not in functions]
        if missing:
            raise ValueError(
                f"features {missing} are functions: give them again as features={{name: function}}"
            )
        given: dict[str, Feature] = {
            name: functions[name] if one is None else one for name, one in columns.items()
        }
        densities = {
            one: {name: Density(**density) for name, density in found.items()}
            for one, found in saved["densities"].items()
        }
        window = None if saved["window"] is None else Window(**saved["window"])
        return cls(
            given, densities, saved["threshold"], saved["by"], saved["explode"], saved["quantile"], window
        )


def learn_observations(
    batch: Batch,
    *,
    features: Mapping[str, Feature],
    by: str | None = None,
    explode: str | None = None,
    quantile: float = 0.99,
    window: Window | None = None,
) -> Observations:
    """Learn the distribution of observations from validated data.

    Numbers get a Gaussian kernel density on a grid, texts and booleans their shares, both separately for each
    class with at least 30 observations.

    Parameters
    ----------
    features
        By name, a full column name or a function of the batch (of the exploded one with ``explode``) with
        one value per row.
    by
        Full name of the column with the class.
    explode
        Full name of a list column: each of its elements is an observation.
    quantile
        Share of the validated observations that must not fire.
    window
        Context that feature functions need, such as an object's last box.

    References
    ----------
    Kang et al., "Finding Label and Model Errors in Perception Data With Learned Observation Assertions",
    SIGMOD 2022. We take the mean of the log likelihoods, not their sum over a factor graph.

    Examples
    --------
    >>> heights = np.random.default_rng(0).normal(1.7, 0.1, 1000)
    >>> people = Batch.from_columns({"inputs.height": heights}, model="m")
    >>> learned = learn_observations(people, features={"height": "inputs.height"}, quantile=0.995)
    >>> odd = Batch.from_columns({"inputs.height": [1.75, 17.5]}, model="m")
    >>> (learned.assertion().severities(odd) > 0).tolist()
    [False, True]
    """
    if not features:
        raise ValueError("features must name at least one column or function")
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}")
    observed = batch if explode is None else batch.explode(explode)
    for wanted in (by, *features.values()):
        if isinstance(wanted, str) and not observed.has(wanted):
            raise KeyError(f"no column {wanted!r} to learn from; there are {', '.join(observed.names)}")
    columns = {name: _values(observed, feature) for name, feature in features.items()}
    densities = {EVERYONE: {name: Density.fit(values) for name, values in columns.items()}}
    for one, rows in _classes(observed, by, None):
        if one != EVERYONE and len(rows) >= FEW:
            densities[one] = {name: Density.fit(values[rows]) for name, values in columns.items()}
    learned = Observations(features, densities, 0.0, by, explode, quantile, window)
    scores = learned.scores(batch)
    threshold = float(np.quantile(scores, quantile)) if len(scores) else 0.0
    return Observations(features, densities, max(threshold, 0.0), by, explode, quantile, window)


def rank_tracks(
    scores: Floats, tracks: NDArray[Any], *, how: Literal["mean", "max"] = "mean"
) -> tuple[NDArray[Any], Floats]:
    """Tracks by the scores of their observations, most suspicious first.

    Parameters
    ----------
    scores : shape (observations,)
    tracks : shape (observations,)
        Track of each observation.
    how
        ``mean`` finds tracks that are wrong as a whole, ``max`` those with one wrong observation.

    Examples
    --------
    >>> rank_tracks(np.array([0.1, 0.2, 3.0, 2.0]), np.array([7, 7, 8, 8]))
    (array([8, 7]), array([2.5 , 0.15]))
    """
    names, place = np.unique(tracks, return_inverse=True)
    if how == "mean":
        combined = np.bincount(place, weights=scores) / np.bincount(place)
    else:
        combined = np.full(len(names), -np.inf)
        np.maximum.at(combined, place, scores)
    order = np.argsort(-combined, kind="stable")
    return names[order], combined[order]


class _Unlikely:
    """Judging function of :class:`Observations`; the learned distributions are part of its revision."""

    def __init__(self, learned: Observations) -> None:
        self.learned = learned
        self.saved = learned.to_json()

    def __call__(self, view: Batch) -> Findings:
        surprise = self.learned.surprises(view)
        score = surprise.mean(axis=1)
        if self.learned.explode is None:
            row, element = np.arange(view.rows), np.full(view.rows, -1)
        else:
            observed = view.explode(self.learned.explode)
            row, element = observed.parent, observed.element
        odd = np.flatnonzero((score > self.learned.threshold) & view.is_new[row])
        worst = odd[np.lexsort((-score[odd], row[odd]))]
        worst = worst[np.r_[True, np.diff(row[worst]) > 0][: len(worst)]]
        names = list(self.learned.features)
        evidence = []
        for one in worst.tolist():
            least = int(surprise[one].argmax())
            line = {"feature": names[least], "surprise": float(surprise[one, least])}
            evidence.append(line if element[one] < 0 else line | {"element": int(element[one])})
        return Findings(row[worst].astype(np.int64), score[worst], evidence=evidence)


def _values(batch: Batch, feature: Feature) -> NDArray[Any]:
    if isinstance(feature, str):
        if not batch.has(feature):  # a block may lack what no record of it carries
            return np.full(batch.rows, None, dtype=object)
        values = batch.column(feature, null=None) if batch.is_null(feature).any() else batch.column(feature)
        if values.dtype == object and all(type(one) in (int, float, NoneType) for one in values.tolist()):
            return values.astype(np.float64)  # numbers with nulls: NaN; truth values stay as they are
        return values
    values = np.asarray(feature(batch))
    if values.shape != (batch.rows,):
        raise ValueError(f"a feature must give one value per row, shape ({batch.rows},), got {values.shape}")
    return values


def _classes(
    batch: Batch, by: str | None, known: Mapping[str, Any] | None
) -> list[tuple[str, NDArray[np.int64]]]:
    """Rows of each class; classes outside ``known`` are pooled."""
    if by is None or not batch.has(by):
        return [(EVERYONE, np.arange(batch.rows))]
    names = np.array(
        [EVERYONE if one is None else str(one) for one in batch.column(by).tolist()], dtype=object
    )
    if known is not None:
        names = np.array([one if one in known else EVERYONE for one in names.tolist()], dtype=object)
    return [(str(one), np.flatnonzero(names == one)) for one in sorted(set(names.tolist()))]
