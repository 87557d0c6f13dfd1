"""Confidence: errors that a model's own probabilities reveal."""

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .reading import Floats, Ints, arrow, codes, graded, numbers, product, short, vectors


def low_score(
    column: str = "outputs.score", *, below: float = 0.6, name: str | None = None, level: Level = "warning"
) -> Assertion:
    """Answer with too low a probability.

    Severity is the distance below the limit, relative to the limit.

    Finds
    -----
    Records near a decision boundary: wrong more often than others, and the cheapest signal there is. It
    misses errors that the model is confident about.

    Cost
    ----
    0.34 µs per record in blocks of 64, 0.018 in blocks of 10,000.

    Measured
    --------
    The model is wrong on the flagged records of clinc150: 0.73 (0.71 to 0.76) of 1,593 flagged, 0.26 of
    all; airline_tweets: 0.53 (0.49 to 0.56) of 718 flagged, 0.23 of all; sst2: 0.53 (0.44 to 0.63) of 101
    flagged, 0.19 of all; cifar10h_label_trust: 0.58 (0.48 to 0.68) of 89 flagged, 0.07 of all.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.score": [0.95, 0.45]}, model="m")
    >>> low_score().severities(batch)
    array([0.  , 0.25])
    """
    if below <= 0:
        raise ValueError(f"below must be > 0, got {below}")

    def judge(batch: Batch) -> Floats:
        score = numbers(batch, column)
        return graded(score < below, (below - score) / below)

    return assertion(
        name=name or f"low_{short(column)}", level=level, description=f"{column} below {below:g}."
    )(judge)


def low_margin(
    column: str = "outputs.probs", *, below: float = 0.1, name: str | None = None, level: Level = "warning"
) -> Assertion:
    """Two classes nearly as probable as each other.

    Severity is how far the margin lies below the limit, relative to it.

    Parameters
    ----------
    column
        Probabilities of all classes.
    below
        The assertion fires if the difference between the two largest is below this.

    Finds
    -----
    Confusions of two classes; sharper than the top probability where there are many classes.

    Cost
    ----
    1.9 µs per record in blocks of 64, 1.1 in blocks of 10,000 with 150 classes.

    Measured
    --------
    The model is wrong on the flagged records of clinc150: 0.87 (0.85 to 0.90) of 762 flagged, 0.26 of
    all; airline_tweets: 0.55 (0.49 to 0.62) of 233 flagged, 0.23 of all; sst2: 0.63 (0.49 to 0.75) of 51
    flagged, 0.19 of all; cifar10h_label_trust: 0.64 (0.48 to 0.78) of 36 flagged, 0.07 of all.

    Examples
    --------
    >>> probs = np.array([[0.7, 0.2, 0.1], [0.46, 0.44, 0.1]])
    >>> batch = Batch.from_columns({"outputs.probs": probs}, model="m")
    >>> low_margin().severities(batch).round(2)
    array([0. , 0.8])
    """
    if below <= 0:
        raise ValueError(f"below must be > 0, got {below}")

    def judge(batch: Batch) -> Floats:
        probs = vectors(batch, column)
        if probs.shape[1] < 2:
            return np.zeros(batch.rows)
        top = np.partition(probs, -2, axis=1)[:, -2:]
        margin = top[:, 1] - top[:, 0]
        return graded(margin < below, (below - margin) / below)

    return assertion(
        name=name or "low_margin", level=level, description=f"The two largest of {column} within {below:g}."
    )(judge)


def high_entropy(
    column: str = "outputs.probs", *, above: float = 0.5, name: str | None = None, level: Level = "warning"
) -> Assertion:
    """Probability spread over many classes.

    Severity is the entropy divided by that of an even spread, in (``above``, 1].

    Finds
    -----
    Inputs that resemble no class, such as out-of-scope requests; with two classes the same as the margin.

    Cost
    ----
    1.3 µs per record in blocks of 64, 0.73 in blocks of 10,000 with 150 classes.

    Measured
    --------
    The model is wrong on the flagged records of clinc150: 0.78 (0.76 to 0.81) of 1,231 flagged, 0.26 of
    all; airline_tweets: 0.41 (0.39 to 0.43) of 1,781 flagged, 0.23 of all; sst2: 0.31 (0.27 to 0.35) of
    460 flagged, 0.19 of all; cifar10h_label_trust: 0.57 (0.37 to 0.76) of 21 flagged, 0.07 of all.

    Examples
    --------
    >>> probs = np.array([[0.98, 0.01, 0.01], [0.4, 0.3, 0.3]])
    >>> batch = Batch.from_columns({"outputs.probs": probs}, model="m")
    >>> high_entropy().severities(batch).round(2)
    array([0.  , 0.99])
    """

    def judge(batch: Batch) -> Floats:
        probs = vectors(batch, column)
        if probs.shape[1] < 2:
            return np.zeros(batch.rows)
        # p log p is 0 at 0.
        spread = -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=1) / np.log(probs.shape[1])
        return graded(spread > above, spread)

    return assertion(
        name=name or "high_entropy",
        level=level,
        description=f"Entropy of {column} above {above:g} of its maximum.",
    )(judge)


def reliability(probs: Floats, truth: Ints, *, bins: int = 10, prior: float = 20.0) -> Floats:
    """Accuracy of a model by predicted class and confidence, from labelled records.

    Parameters
    ----------
    probs : shape (rows, classes)
    truth : shape (rows,)
        Position of the right class.
    bins
        Equal-width bins of the top probability on [0, 1].
    prior
        Weight, in records, of the bin's accuracy over all classes; an empty bin gets its midpoint.

    Returns
    -------
    Floats
        Shape (classes, bins).

    Examples
    --------
    >>> reliability(np.array([[0.9, 0.1]] * 4), np.array([0, 1, 1, 1]), bins=2, prior=0)[0]
    array([0.25, 0.25])
    """
    predicted, confidence = probs.argmax(axis=1), probs.max(axis=1)
    place = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    right = (predicted == truth).astype(np.float64)
    total = np.zeros((probs.shape[1], bins))
    hits = np.zeros_like(total)
    np.add.at(total, (predicted, place), 1.0)
    np.add.at(hits, (predicted, place), right)
    middle = (np.arange(bins) + 0.5) / bins
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = np.where(total.sum(axis=0) > 0, hits.sum(axis=0) / total.sum(axis=0), middle)
        table = (hits + prior * overall) / (total + prior)
        by_class = (hits.sum(axis=1) / total.sum(axis=1))[:, None]
    # Where nothing was seen at all, what the class is right in elsewhere is the best guess.
    return np.where(np.isnan(table), np.where(np.isnan(by_class), overall, by_class), table)


def overconfident(
    table: Floats,
    column: str = "outputs.probs",
    *,
    gap: float = 0.1,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Answer whose confidence exceeds the accuracy of similar answers.

    Severity is the confidence less the accuracy measured for that class and confidence.

    Parameters
    ----------
    table
        Result of :func:`reliability` on labelled records.
    gap
        The assertion fires if confidence less accuracy is above this.

    Finds
    -----
    Classes and confidence levels at which the model is overconfident: errors that a threshold on the
    probability misses.

    Cost
    ----
    1.2 µs per record in blocks of 64, 0.47 in blocks of 10,000.

    Measured
    --------
    The model is wrong on the flagged records of airline_tweets: 0.59 (0.52 to 0.65) of 229 flagged, 0.23 of
    all; cifar10h_label_trust: 0.35 (0.29 to 0.42) of 204 flagged, 0.07 of all. Nothing flagged on clinc150
    and sst2, whose models are underconfident.

    Examples
    --------
    >>> table = np.array([[0.6, 0.95], [0.6, 0.7]])
    >>> batch = Batch.from_columns({"outputs.probs": np.array([[0.95, 0.05], [0.05, 0.95]])}, model="m")
    >>> overconfident(table).severities(batch)
    array([0.  , 0.25])
    """
    right = np.asarray(table, dtype=np.float64)
    bins = right.shape[1]

    def judge(batch: Batch) -> Floats:
        probs = vectors(batch, column)
        if probs.shape[1] != len(right):
            return np.zeros(batch.rows)
        confidence = probs.max(axis=1)
        known = np.isfinite(confidence)
        place = np.clip(np.where(known, confidence, 0.0) * bins, 0, bins - 1).astype(np.int64)
        promised = np.where(known, confidence - right[probs.argmax(axis=1), place], 0.0)
        return graded(promised > gap, promised)

    return assertion(
        name=name or "overconfident",
        level=level,
        description=f"Confidence more than {gap:g} above the accuracy of answers like it.",
    )(judge)


def contradicts_neighbours(
    reference: Floats,
    labels: Ints,
    *,
    classes: tuple[object, ...],
    column: str = "outputs.embedding",
    label: str = "outputs.label",
    score: str = "outputs.score",
    confident: float = 0.9,
    neighbours: int = 10,
    share: float = 0.2,
    slot: str | None = None,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Confident answer that contradicts the labels of the nearest records.

    Severity is the confidence less the share of neighbours that have the predicted label.

    Parameters
    ----------
    reference : shape (records, width)
        Embeddings of labelled records, compared by cosine.
    labels : shape (records,)
        Position of their labels in ``classes``.
    classes
        Values of the column ``label``.
    share
        The assertion fires if at most this share of the neighbours has the predicted label.
    slot
        Read the embedding from the answers of this slot instead of the recorded outputs.

    Finds
    -----
    Confident errors: a classifier that ignores its own features, or outdated labels.

    Cost
    ----
    185 µs per record in blocks of 64, 264 in blocks of 10,000 with 15,000 reference records of width
    100.

    Measured
    --------
    Against answers as confident. Digits through a noisy sensor, neighbours of the pixels, 0.8 and above:
    wrong on 0.97 (0.85 to 0.99) of 35 flagged, 0.16 of all. clinc150, neighbours of compressed word
    counts, 0.6 and above: 0.11 (0.09 to 0.13) of 849 flagged, 0.07 of all: as good as the embedding.

    Examples
    --------
    >>> known = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> judge = contradicts_neighbours(known, np.array([0, 0, 1, 1]), classes=("cat", "dog"), neighbours=2)
    >>> seen = {"outputs.embedding": np.array([[1.0, 0.1], [1.0, 0.1]]), "outputs.score": [0.9, 0.9]}
    >>> judge.severities(Batch.from_columns(seen | {"outputs.label": ["cat", "dog"]}, model="m"))
    array([0. , 0.9])
    """
    base = np.asarray(reference, dtype=np.float32)
    base = np.ascontiguousarray((base / np.maximum(np.linalg.norm(base, axis=1, keepdims=True), 1e-12)).T)
    given = np.asarray(labels, dtype=np.int64)
    count = min(neighbours, len(given))
    if count < 1 or base.shape[1] != len(given):
        raise ValueError(f"one label per reference record expected, got {base.shape[1]} and {len(given)}")

    def judge(batch: Batch) -> Floats:
        sure = numbers(batch, score)
        points = vectors(batch, column, slot)
        severity = np.zeros(batch.rows)
        if points.shape[1] != len(base):
            return severity
        answer = codes(arrow(batch, label), classes)
        asked = np.flatnonzero((sure >= confident) & (answer >= 0) & np.isfinite(points).all(axis=1))
        for rows in np.array_split(asked, max(1, -(-len(asked) // 1024))):
            alike = product(
                points[rows].astype(np.float32), base
            )  # (rows, records); a row's length changes no order
            nearest = np.argpartition(-alike, count - 1, axis=1)[:, :count]
            agree = (given[nearest] == answer[rows, None]).mean(axis=1)
            severity[rows] = graded(agree <= share, sure[rows] - agree)
        return severity

    return assertion(
        name=name or "contradicts_neighbours",
        level=level,
        description=f"Sure of a label that at most {share:g} of the {count} nearest labelled records have.",
    )(judge)
