"""Airline tweets repair a small BERT in a service of their own, by the clock."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.assertions._text_tasks import BAD, GOOD
from tests.end_to_end.service import Service

from ._repair import PATIENCE_S, Clock, label, newest_job, promoted, send, wait_while
from ._sentiment import CLASSES, Texts

HEALTHY = 300
"""Sentences of SST-2 before the first tweet."""
_KNOWN, _HELD_OUT = 10_000, 2_500
_CONFIG = """
[server]
port = 0
[models.reviews]
folder = "base"
inputs = ["text"]
classes = ["negative", "positive"]
assertions = ["checks.py"]
[models.reviews.retrain]
enabled = true
method = "lora"
replay = "sst2-train"
replay_ratio = 10.0
epochs = 6
learning_rate = 1e-3
batch_rows = 32
held_out_share = 0.3
lora = {{ rank = 8, dropout = 0.1 }}
labelled_flags = {labels}
[models.reviews.gate]
held_out = "sst2-heldout"
[worker]
device = "cpu"
"""
_CHECK = '''
from outrider.assertions import assertion

BAD, GOOD = {bad!r}, {good!r}


@assertion
def against_plain_words(batch):
    """Called positive with a word of complaint, or negative with one of praise."""
    found = []
    for text, said in zip(batch.column("inputs.text"), batch.column("outputs.label")):
        words = {{*"".join(c if c.isalnum() else " " for c in text.lower()).split()}}
        blamed, praised = bool(words & BAD), bool(words & GOOD)
        found.append(blamed and not praised if said == "positive" else praised and not blamed)
    return found
'''


def repair(project: Path, phrases: Texts, healthy: Texts, tweets: Texts, labelled: dict[int, int]) -> Clock:
    """Stages of one repair: tweets come, the flagged are labelled at once, trigger and gate do the rest.

    Parameters
    ----------
    project
        Folder that holds ``base``.
    phrases
        What the base learned first and, behind that, what it never saw.
    healthy, tweets
        Traffic before the fault and from it on.
    labelled
        Classes of the flagged tweets that a person is asked about, by place.
    """
    for name, part in (("train", slice(0, _KNOWN)), ("heldout", slice(-_HELD_OUT, None))):
        some = Texts(phrases.text[part], phrases.y[part])
        ids = [f"{name}{row}" for row in range(len(some))]
        said = [CLASSES[y] for y in some.y]
        frame = pd.DataFrame({"id": ids, "inputs.text": some.text, "label.label": said})
        frame.to_parquet(project / f"sst2-{name}.parquet", index=False)
    (project / "checks.py").write_text(_CHECK.format(bad=set(BAD), good=set(GOOD)), encoding="utf-8")
    config = project / "outrider.toml"
    config.write_text(_CONFIG.format(labels=len(labelled)), encoding="utf-8")
    with Service(config, is_started=True) as service:
        for name in ("sst2-train", "sst2-heldout"):
            service.run_command("dataset", "import", name, f"{name}.parquet", "--model", "reviews")
        send(service, records(healthy.take(np.arange(HEALTHY)), "healthy"))
        service.wait_judged(HEALTHY, PATIENCE_S)
        clock = Clock()
        send(service, records(tweets, "tweet"))
        service.wait_judged(HEALTHY + len(tweets), PATIENCE_S)
        clock.ends("flagged")
        label(service, "reviews", {f"tweet{row}": CLASSES[y] for row, y in labelled.items()})
        clock.ends("labelled")
        wait_while(service, "", "queued")
        clock.ends("triggered")
        wait_while(service, "", "queued", "running", "waiting")
        promoted(service, "reviews")
        clock.ends("processes", parts=newest_job(service)["result"]["seconds"])
    return clock


def records(some: Texts, prefix: str) -> list[dict[str, object]]:
    """Records of the service, ids from ``prefix``."""
    return [
        {"model": "reviews", "id": f"{prefix}{n}", "inputs": {"text": text}}
        for n, text in enumerate(some.text)
    ]
