"""Cost of each configured assertion per stored record. A separate process, because user code runs."""

import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from outrider.assertions import Assertion, Batch, load_assertions
from outrider.assertions.checker import severities_of
from outrider.dataops.journal.newest_records import newest_records
from outrider.dataops.payloads.payloads import payload_columns
from outrider.monitor.settings.config import Settings, load_settings
from outrider.monitor.settings.payloads import open_payloads

ROWS = 2_000
RUNS = 5
NO_RECORDS = "no records stored yet"


def costs(settings: Settings) -> dict[str, str]:
    """Microseconds per record of each assertion, as text, by ``model/assertion``."""
    found: dict[str, str] = {}
    for name, model in settings.models.items():
        batch = opened_records(settings, name, newest_records(settings.journal_path, name, most_rows=ROWS))
        for file in model.assertions:
            try:
                assertions = load_assertions(settings.path(file))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file may do anything
                found[f"{name}/{file}"] = f"does not load: {error!r}"[:200]
                continue
            found |= {f"{name}/{judge.name}": cost(judge, batch) for judge in assertions}
    return found


def opened_records(settings: Settings, name: str, batch: Batch | None) -> Batch | None:
    """Records whose payloads are local, decoded; None if there are none."""
    if batch is None or not payload_columns(batch):
        return batch
    payloads = open_payloads(settings, name, may_fetch=False)
    batch = batch.slice(max(0, batch.rows - payloads.rows_at_once))
    opened, rows = payloads.opened(batch, np.arange(batch.rows))
    return opened if len(rows) else None


def cost(judge: Assertion, batch: Batch | None) -> str:
    """Median microseconds per record, as text; marked if called once per record."""
    if batch is None:
        return NO_RECORDS + _kind(judge)
    taken = []
    try:
        for _ in range(RUNS):
            fresh = Batch(batch.to_arrow(), model=batch.model)  # a batch keeps what it converted
            start = time.perf_counter()
            severities_of(judge, fresh)
            taken.append(time.perf_counter() - start)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - so may a user's function
        return f"{type(error).__name__}: {error}"[:200] + _kind(judge)
    return f"{statistics.median(taken) / batch.rows * 1e6:.2f} µs per record{_kind(judge)}"


def _kind(judge: Assertion) -> str:
    return " (per_record)" if judge.per_record else ""


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # what user code prints is no part of the answer
        answer = costs(load_settings(Path(sys.argv[1])))
    print(json.dumps(answer))  # noqa: T201 - the answer to the process that asked
