"""Assertions: each sees a Batch and says of every record whether, or how badly, something is wrong."""

import numpy as np

from outrider.assertions import assertion


@assertion
def unsure(batch):
    """Score below 0.6."""
    return np.maximum(0.0, 0.6 - batch.column("outputs.score", null=1.0))


@assertion(level="critical")
def rich_but_no_barolo(batch):
    """Above 1,000 mg of proline, as only Barolo is, and called another grape."""
    return (batch.column("inputs.proline", null=0.0) > 1000) & (batch.column("outputs.label") != "barolo")
