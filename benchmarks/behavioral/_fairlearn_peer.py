"""Rates by group as fairlearn finds them, for ``tests/behavioral_tests/fairlearn.json``.

In an environment of its own: ``pip install fairlearn==0.12.0``, then
``python benchmarks/behavioral/_fairlearn_peer.py > tests/behavioral_tests/fairlearn.json``.
"""

import json
import sys
from typing import Any

import numpy as np

ROWS = 3000


def drawn() -> dict[str, Any]:
    """Group, label, answer and weight of records, of which one group is answered otherwise."""
    rng = np.random.default_rng(5)
    sex = rng.choice(["f", "m", "x"], ROWS, p=[0.45, 0.45, 0.1])
    truth = (rng.random(ROWS) < np.where(sex == "m", 0.5, 0.35)).astype(int)
    said = rng.random(ROWS) < np.where(truth == 1, 0.8, np.where(sex == "m", 0.3, 0.15))
    return {"sex": sex, "truth": truth, "said": said.astype(int), "weight": rng.choice([1.0, 2.0, 4.0], ROWS)}


def main() -> None:
    """Write the figures of all records."""
    import fairlearn
    from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
    from sklearn.metrics import accuracy_score, precision_score

    data = drawn()
    metrics = {
        "selection_rate": selection_rate,
        "tpr": true_positive_rate,
        "fpr": false_positive_rate,
        "ppv": precision_score,
        "accuracy": accuracy_score,
    }
    frame = MetricFrame(
        metrics=metrics,
        y_true=data["truth"],
        y_pred=data["said"],
        sensitive_features=data["sex"],
        sample_params={name: {"sample_weight": data["weight"]} for name in metrics},
    )
    found = {
        "fairlearn": fairlearn.__version__,
        "rates": {name: frame.by_group[name].to_dict() for name in metrics},
        "differences": frame.difference().to_dict(),
        "ratios": frame.ratio().to_dict(),
    }
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
