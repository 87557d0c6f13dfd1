"""Behavioral tests of the digit model.

Run by pytest, ``outrider test``, the gate and, sampled, live.

``live=0.1`` asks about one live record in ten as well; a failure there is a flag.
"""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, perturb

PIXELS = (-0.5, 1.5)  # what the cameras deliver


def held_out():
    """Labelled frames of cards outside the training data."""
    path = Path(__file__).parent.parent / "heldout.parquet"
    return Batch.from_arrow(pq.read_table(path), model="digits")


def one_column(images, rng):  # noqa: ARG001 - every change takes both
    """Moved to the right by one column."""
    return np.pad(images[:, :, :-1], ((0, 0), (0, 0), (1, 0)))


test_reads_digits = MFT(capability="reading", cases=held_out, tolerance=0.1)

test_brightness = INV(
    capability="lighting",
    description="brighter by 0.1",
    cases=held_out,
    perturb=perturb.image.brightness(by=0.05, value_range=PIXELS),  # of the range
    tolerance=0.1,
    live=0.1,
)
test_shift = INV(
    capability="mounting",
    description="the card one column to the right",
    cases=held_out,
    perturb=perturb.column("image", one_column),
    tolerance=0.2,
    live=0.1,
)
test_noise = INV(
    capability="lighting",
    description="as much noise again as the cameras have",
    cases=held_out,
    perturb=perturb.image.noise(sigma=0.03, value_range=PIXELS),
    tolerance=0.1,
)
