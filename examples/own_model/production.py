"""The service that uses the model: it sends Outrider a copy of what it was asked and answered; labels follow.

Half of the way through, the photometer of the southern laboratory loses two thirds of its light.
"""

import argparse
import sys

import numpy as np
from wine import again, bottles, first

from outrider.monitor.client import Client

MEASUREMENTS = 24_000
FAULT = 10_000
VERSIONS = {"1": first, "2": again}


def measured():
    """Every measurement in order, with its bottle, laboratory and grape.

    A bottle that nobody trained on is measured again and again, within 2 per cent.
    """
    rng = np.random.default_rng(7)
    table, grapes = bottles(known=False)
    bottle = rng.integers(len(table), size=MEASUREMENTS)
    inputs = table.iloc[bottle] * rng.normal(1, 0.02, (MEASUREMENTS, table.shape[1]))
    laboratory = rng.choice(["north", "east", "south"], size=MEASUREMENTS)
    inputs.loc[(laboratory == "south") & (np.arange(MEASUREMENTS) >= FAULT), "flavanoids"] *= 0.3
    about = {"bottle": bottle, "laboratory": laboratory, "grape": grapes[bottle]}
    return about, inputs


def send(client, model, numbers):
    """Answer, and let the client have a copy: that takes microseconds, and never raises or waits."""
    about, inputs = measured()
    probs, asked = model.predict_proba(inputs), inputs.to_dict("records")
    for number in numbers:
        second, best = np.sort(probs[number])[-2:]
        client.capture(
            asked[number],
            {"label": model.classes_[probs[number].argmax()], "score": best, "margin": best - second},
            id=f"m{number}",
            entity=f"bottle-{about['bottle'][number]}",
            attrs={"laboratory": about["laboratory"][number]},
        )


def label(client, numbers):
    """Say what growers say later: the grape of every fifth one."""
    about, _ = measured()
    for number in numbers[::5]:
        client.label(f"m{number}", {"label": about["grape"][number]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["send", "label"])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--version", choices=VERSIONS, default="1", help="model that answers")
    told = parser.parse_args()
    numbers = range(told.first, told.first + told.count)
    client = Client(model="wine", version=told.version)
    if told.what == "send":
        send(client, VERSIONS[told.version](), numbers)
    else:
        label(client, numbers)
    client.flush(60)  # until the server has them on its disk; raises where it has not
    sys.stdout.write(f"{client.counts.acknowledged} acknowledged\n")
