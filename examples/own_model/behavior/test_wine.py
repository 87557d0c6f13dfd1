"""What the model must be able to do: asked by pytest, at the gate, and, where it says live=, of traffic."""

from outrider.behavioral_tests import INV, MFT, perturb

SAMPLE = "../data/sample.csv"

test_known_bottles = MFT(capability="knowledge", cases=SAMPLE, tolerance=0.1)
test_repeated_measurement = INV(
    capability="robustness",
    cases=SAMPLE,
    perturb=perturb.tabular.jitter("hue", noise=0.01),
    tolerance=0.05,
    live=0.02,
)
