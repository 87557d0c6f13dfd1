"""What is worth a look in the traffic of the census model."""

from outrider.assertions import assertion


@assertion
def unsure(batch):
    """Probability of the answer below 0.6."""
    return batch.column("outputs.score") < 0.6
