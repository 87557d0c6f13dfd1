"""Training of the champion on healthy frames.

Writes the files that the other files of this project read.

    python train.py --seed 0

| file | what it holds |
|---|---|
| train.parquet | labelled frames it learned from: replayed by every retraining |
| heldout.parquet | labelled frames of other cards: the gate and the behavioral tests ask about them |
| reference.npz | healthy frames, for the limits of checks.py |
| small.safetensors | the weights of a smaller network, which runs beside the champion |
| champion.safetensors | the weights; written last, so that whoever waits for them finds the rest |
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from model import DigitNet, SmallNet
from safetensors.torch import save_file

from outrider.demo.cards import card_name, read_deck, render_healthy

HERE = Path(__file__).parent
EPOCHS, RATE, ROWS = 7, 2e-3, 64


def train(images, digits, seed, make=DigitNet):
    """A network trained from scratch; its rate falls linearly to 2 %."""
    torch.manual_seed(seed)
    net = make()
    x, y = torch.from_numpy(images), torch.from_numpy(digits)
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    steps = EPOCHS * -(-len(x) // ROWS)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: max(0.02, 1 - step / steps))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=draw).split(ROWS):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def margins(net, images):
    """Probability of the best answer less that of the second, per image."""
    with torch.inference_mode():
        best = net(torch.from_numpy(images)).softmax(dim=1).topk(2, dim=1).values
    return (best[:, 0] - best[:, 1]).numpy()


def write_table(name, images, cards, digits):
    """Labelled frames as a table that ``outrider dataset import`` takes."""
    frame = np.arange(len(cards)) % (len(cards) // len(np.unique(cards)))
    entities = [card_name(card) for card in cards]
    table = pa.table(
        {
            "id": [f"{entity}.{name}.{number}" for entity, number in zip(entities, frame, strict=True)],
            "entity": entities,
            "inputs.image": pa.FixedShapeTensorArray.from_numpy_ndarray(images),
            "label.label": digits[cards],
        }
    )
    pq.write_table(table, HERE / f"{name}.parquet")


def main(seed):
    """Make all files."""
    torch.set_num_threads(1)  # the result must not depend on the machine's cores
    deck = read_deck(seed)
    rng = np.random.default_rng([seed, 0])
    images, cards = render_healthy(deck, deck.train, 4, rng)
    net = train(images, deck.digits[cards], seed)
    write_table("train", images, cards, deck.digits)
    write_table("heldout", *render_healthy(deck, deck.held_out, 4, rng), deck.digits)
    calibration, _ = render_healthy(deck, deck.train, 2, rng)
    np.savez(
        HERE / "reference.npz",
        healthy=images[::4],
        calibration=calibration,
        margins=margins(net, calibration),
    )
    save_file(train(images, deck.digits[cards], seed, SmallNet).state_dict(), HERE / "small.safetensors")
    draft = HERE / "champion.draft"
    save_file(net.state_dict(), draft)
    draft.replace(HERE / "champion.safetensors")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args().seed)
