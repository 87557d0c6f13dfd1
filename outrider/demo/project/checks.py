"""Six assertions on errors that show without the digit.

A severity above 0 flags the record; flagged records are kept, shown, and put up for labelling. Limits are
what 1 % of healthy frames exceed: ``reference.npz`` holds healthy frames, written by ``train.py``.
"""

from pathlib import Path

import numpy as np

from outrider.assertions import Window, assertion

with np.load(Path(__file__).with_name("reference.npz")) as file:
    HEALTHY = file["healthy"]  # (cards, 8, 8): one frame of each training card
    CALIBRATION = file["calibration"]  # (frames, 8, 8): others, which set the limits
    MARGINS = file["margins"]  # (frames,): the champion's margins on those


def limit(scores):
    """Limit that 1 % of healthy frames exceed."""
    return float(np.quantile(scores, 0.99))


def excess(scores, threshold):
    """Severity: excess of a score over its limit, else 0."""
    return np.maximum(0.0, scores - threshold)


# ---- about the answer ----------------------------------------------------------------------------------


@assertion(window=Window(by="attrs.track", rows=5, columns=("attrs.track", "outputs.label")), owner="reading")
def track(batch):
    """Answer contradicted by another, as frequent one in the track.

    At least as frequent among the frames of the track so far.
    """
    labels = batch.column("outputs.label", null=-1)
    severity = np.zeros(batch.rows)
    for _, rows in batch.groups("attrs.track"):
        seen = labels[rows]  # in order of arrival
        for i, row in enumerate(rows):
            values, counts = np.unique(seen[max(0, i - 4) : i + 1], return_counts=True)
            own = counts[values == seen[i]][0]
            if counts[values != seen[i]].max(initial=0) >= own:
                severity[row] = 1.0 - own / counts.sum()
    return severity


UNSURE = limit(1.0 - MARGINS)


@assertion(owner="reading")
def margin(batch):
    """Two best answers closer than in 99 % of healthy frames."""
    return excess(1.0 - batch.column("outputs.margin", null=1.0), UNSURE)


# ---- about the image -----------------------------------------------------------------------------------


def ink_score(images):
    """Distance of the mean brightness from the healthy one, in standard deviations."""
    healthy = HEALTHY.mean(axis=(1, 2))
    return np.abs(images.mean(axis=(1, 2)) - healthy.mean()) / healthy.std()


INK = limit(ink_score(CALIBRATION))


@assertion(owner="cameras")
def ink(batch):
    """Much more or much less ink than on a healthy frame."""
    return excess(ink_score(batch.tensor("inputs.image", null=0.0)), INK)


def column_score(images):
    """Brightest column: its darkest pixel less its spread."""
    return (images.min(axis=1) - images.std(axis=1)).max(axis=1)


COLUMN = limit(column_score(CALIBRATION))


@assertion(level="critical", owner="cameras")
def stuck_column(batch):
    """A column is bright from top to bottom."""
    return excess(column_score(batch.tensor("inputs.image", null=0.0)), COLUMN)


def block_score(images):
    """Brightness of the brightest 3 by 3 patch, by its darkest pixel. Strokes are two pixels wide."""
    patches = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return patches.min(axis=(3, 4)).max(axis=(1, 2))


BLOCK = limit(block_score(CALIBRATION))


@assertion(level="critical", owner="cameras")
def bright_block(batch):
    """A patch is bright all over: something lies on the lens."""
    return excess(block_score(batch.tensor("inputs.image", null=0.0)), BLOCK)


def mirror_score(images):
    """Gain in distance to a healthy frame by flipping."""

    def distance(frames):
        flat, healthy = frames.reshape(len(frames), -1), HEALTHY.reshape(len(HEALTHY), -1)
        squares = (flat**2).sum(axis=1)[:, None] - 2 * flat @ healthy.T + (healthy**2).sum(axis=1)
        return np.sqrt(np.maximum(squares.min(axis=1), 0.0))

    return distance(images) - distance(images[:, :, ::-1])


MIRROR = limit(mirror_score(CALIBRATION))


@assertion(owner="cameras")
def mirror(batch):
    """Frame that looks more like a digit when flipped."""
    return excess(mirror_score(batch.tensor("inputs.image", null=0.0)), MIRROR)
