"""Out of distribution: inputs unlike the training data.

Detectors are fitted on reference records and consist of arrays: ``np.savez(path, **fitted.arrays())`` saves
one, ``Mahalanobis.of(np.load(path))`` loads it, without pickle.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .reading import Floats, Ints, graded, product, vectors

HELD_OUT = 0.2
"""Share of the reference held out for the threshold: distances of fitted records are too small."""


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Class means and a shared whitening of reference embeddings; see :func:`fit_mahalanobis`."""

    means: Floats
    """Whitened class means, shape (classes, width)."""
    whitening: Floats
    """Whitening matrix, shape (width, width)."""
    threshold: float

    def arrays(self) -> dict[str, Any]:
        """All fields as arrays, for ``np.savez``."""
        return asdict(self)

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "Mahalanobis":
        """Detector from the arrays of :meth:`arrays`."""
        return cls(np.asarray(arrays["means"]), np.asarray(arrays["whitening"]), float(arrays["threshold"]))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Reference embeddings of unit length; see :func:`fit_neighbours`."""

    reference: NDArray[np.float32]
    """Embeddings, shape (records, width)."""
    count: int
    threshold: float

    def arrays(self) -> dict[str, Any]:
        """All fields as arrays, for ``np.savez``."""
        return asdict(self)

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> "Neighbours":
        """Detector from the arrays of :meth:`arrays`."""
        return cls(np.asarray(arrays["reference"]), int(arrays["count"]), float(arrays["threshold"]))


def fit_mahalanobis(
    reference: Floats, labels: Ints | None = None, *, quantile: float = 0.99, seed: int = 0
) -> Mahalanobis:
    """Fit class means and one shrunk covariance.

    The threshold is a quantile of held-out records.

    Parameters
    ----------
    reference : shape (records, width)
    labels : shape (records,)
        Class of each record; None fits one mean.
    quantile
        Share of in-distribution records that must not fire.

    References
    ----------
    Lee et al., "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial
    Attacks", NeurIPS 2018, eq. 2; Ledoit and Wolf, "A Well-Conditioned Estimator", 2004.
    """
    from sklearn.covariance import ledoit_wolf

    points = np.asarray(reference, dtype=np.float64)
    classes = (
        np.zeros(len(points), dtype=np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
    )
    fitted, held = _split(len(points), seed)
    present = np.unique(classes[fitted])
    means = np.stack([points[fitted][classes[fitted] == one].mean(axis=0) for one in present])
    centred = points[fitted] - means[np.searchsorted(present, classes[fitted])]
    covariance = ledoit_wolf(centred, assume_centered=True)[0]
    whitening = np.linalg.cholesky(np.linalg.inv(covariance))
    far = _mahalanobis(points[held], means @ whitening, whitening)
    return Mahalanobis(means @ whitening, whitening, float(np.quantile(far, quantile)))


def mahalanobis(
    fitted: Mahalanobis,
    column: str = "outputs.embedding",
    *,
    slot: str | None = None,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Embedding far from each class in Mahalanobis distance.

    Severity is the distance divided by the threshold.

    Parameters
    ----------
    fitted
        Result of :func:`fit_mahalanobis`.
    slot
        Read the embedding from the answers of this slot instead of the recorded outputs.

    Finds
    -----
    New kinds of input, broken preprocessing, requests out of scope.

    Cost
    ----
    4.9 µs per record in blocks of 64, 3.5 in blocks of 10,000 with 150 classes of width 100.

    Measured
    --------
    Digits 8 and 9, unknown to a network trained on 0 to 7: 0.68 (0.60 to 0.75) of 156 found, 0.53 (0.46 to
    0.60) of 201 flagged, 0.20 of all. clinc150's requests out of scope: 0.10 (0.08 to 0.12) of 1,000 found,
    0.21 (0.18 to 0.25) of 459 flagged, 0.18 of all (of little use on compressed word counts). Threshold: 95 %
    of the reference.

    Examples
    --------
    >>> reference = np.random.default_rng(0).normal(size=(400, 2))
    >>> judge = mahalanobis(fit_mahalanobis(reference))
    >>> seen = Batch.from_columns({"outputs.embedding": np.array([[0.1, 0.2], [9, 9]])}, model="m")
    >>> judge.severities(seen) > 0
    array([False,  True])
    """
    means, whitening, threshold = fitted.means, fitted.whitening, fitted.threshold

    def judge(batch: Batch) -> Floats:
        points = vectors(batch, column, slot)
        if points.shape[1] != len(whitening):
            return np.zeros(batch.rows)
        far = _mahalanobis(points, means, whitening)
        return graded(far > threshold, far / threshold)

    return assertion(
        name=name or "far_from_classes",
        level=level,
        description=f"{column} is far from every class of the reference.",
    )(judge)


def fit_neighbours(
    reference: Floats, *, neighbours: int = 10, quantile: float = 0.99, most: int = 2000, seed: int = 0
) -> Neighbours:
    """Keep up to ``most`` reference embeddings.

    The threshold is a quantile of held-out records.

    References
    ----------
    Sun et al., "Out-of-Distribution Detection with Deep Nearest Neighbors", ICML 2022, eq. 3.
    """
    points = _unit(np.asarray(reference, dtype=np.float32))
    fitted, held = _split(len(points), seed)
    kept = np.ascontiguousarray(points[fitted[:most]])
    count = min(neighbours, len(kept))
    return Neighbours(kept, count, float(np.quantile(_far(points[held], kept, count), quantile)))


def far_from_neighbours(
    fitted: Neighbours,
    column: str = "outputs.embedding",
    *,
    slot: str | None = None,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Embedding whose nearest reference records are far away.

    Severity is the cosine distance to the k-th neighbour divided by the threshold.

    Parameters
    ----------
    fitted
        Result of :func:`fit_neighbours`.
    slot
        Read the embedding from the answers of this slot instead of the recorded outputs.

    Finds
    -----
    What :func:`mahalanobis` finds, without the assumption that a class is one cloud; at a cost that grows
    with the reference.

    Cost
    ----
    24 µs per record in blocks of 64, 22 in blocks of 10,000 with 2,000 reference records of width 100.

    Measured
    --------
    Digits 8 and 9, unknown to a network trained on 0 to 7: 0.56 (0.48 to 0.63) of 156 found, 0.47 (0.40 to
    0.54) of 186 flagged, 0.20 of all. clinc150's requests out of scope: 0.09 (0.07 to 0.11) of 1,000 found,
    0.29 (0.24 to 0.34) of 310 flagged, 0.18 of all (of little use on compressed word counts). Threshold: 95 %
    of the reference.

    Examples
    --------
    >>> reference = np.random.default_rng(0).normal(size=(200, 2)) * [1, 0.1] + [5, 0]
    >>> judge = far_from_neighbours(fit_neighbours(reference))
    >>> seen = Batch.from_columns({"outputs.embedding": np.array([[5.0, 0], [0, 5]])}, model="m")
    >>> judge.severities(seen) > 0
    array([False,  True])
    """
    base, count, threshold = fitted.reference, fitted.count, max(fitted.threshold, 1e-12)

    def judge(batch: Batch) -> Floats:
        points = vectors(batch, column, slot)
        if points.shape[1] != base.shape[1]:
            return np.zeros(batch.rows)
        known = np.isfinite(points).all(axis=1)
        far = np.zeros(batch.rows)
        far[known] = _far(_unit(points[known].astype(np.float32)), base, count)
        return graded(far > threshold, far / threshold)

    return assertion(
        name=name or "far_from_neighbours",
        level=level,
        description=f"{column} has no near neighbour in the reference.",
    )(judge)


def energy(logits: Floats, *, temperature: float = 1.0) -> Floats:
    """Free energy of logits, shape (rows,); higher is less familiar.

    Liu et al., NeurIPS 2020, eq. 4.
    """
    largest = logits.max(axis=1, keepdims=True, initial=-np.inf)
    total = np.exp((logits - largest) / temperature).sum(axis=1)
    free: Floats = -temperature * np.log(total) - largest[:, 0]
    return free


def fit_energy(logits: Floats, *, quantile: float = 0.99, temperature: float = 1.0) -> float:
    """Energy above which a share 1 - ``quantile`` of the reference lies.

    Use it as ``above`` of :func:`high_energy`.
    """
    return float(np.quantile(energy(np.asarray(logits, dtype=np.float64), temperature=temperature), quantile))


def high_energy(
    above: float,
    column: str = "outputs.logits",
    *,
    temperature: float = 1.0,
    slot: str | None = None,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Logits that are all low: no class fits the record.

    Severity is the distance of the energy above the limit.

    Parameters
    ----------
    above
        Result of :func:`fit_energy` on records the model was not trained on.

    Finds
    -----
    Requests out of scope and inputs of another kind, from the classifier's own outputs.

    Cost
    ----
    2.1 µs per record in blocks of 64, 0.87 in blocks of 10,000 with 150 classes.

    Measured
    --------
    Digits 8 and 9, unknown to a network trained on 0 to 7: 0.89 (0.83 to 0.93) of 156 found, 0.76 (0.69 to
    0.82) of 183 flagged, 0.20 of all. clinc150's requests out of scope: 0.47 (0.44 to 0.50) of 1,000 found,
    0.70 (0.66 to 0.73) of 680 flagged, 0.18 of all. Threshold: 95 % of the reference.

    References
    ----------
    Liu et al., "Energy-based Out-of-distribution Detection", NeurIPS 2020.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.logits": np.array([[9.0, 0.0], [0.1, 0.2]])}, model="m")
    >>> high_energy(-2.0).severities(batch).round(2)
    array([0.  , 1.16])
    """

    def judge(batch: Batch) -> Floats:
        logits = vectors(batch, column, slot)
        if not logits.shape[1]:
            return np.zeros(batch.rows)
        with np.errstate(invalid="ignore"):
            free = energy(logits, temperature=temperature)
        return graded(free > above, free - above)

    return assertion(
        name=name or "high_energy", level=level, description=f"Energy of {column} above {above:.3g}."
    )(judge)


def _split(rows: int, seed: int) -> tuple[Ints, Ints]:
    if rows < 10:
        raise ValueError(f"at least 10 reference records expected, got {rows}")
    order = np.random.default_rng(seed).permutation(rows)
    held = max(1, int(rows * HELD_OUT))
    return order[held:], order[:held]


def _mahalanobis(points: Floats, means: Floats, whitening: Floats) -> Floats:
    """Distance to the nearest class mean, both in whitened coordinates, shape (rows,)."""
    white = product(points, whitening)
    squared = (white**2).sum(axis=1)[:, None] - 2 * product(white, means.T) + (means**2).sum(axis=1)
    nearest: Floats = np.sqrt(np.maximum(squared.min(axis=1), 0.0))
    return nearest


def _unit(points: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(
        points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), np.float32(1e-12)),
        dtype=np.float32,
    )


def _far(points: NDArray[np.float32], base: NDArray[np.float32], count: int) -> Floats:
    """Cosine distance to the ``count``-th nearest of ``base``, shape (rows,), in pieces to limit memory."""
    far = np.zeros(len(points))
    for start in range(0, len(points), 1024):
        alike = product(points[start : start + 1024], base.T)
        far[start : start + 1024] = 1.0 - np.partition(alike, -count, axis=1)[:, -count]
    return far
