"""Keeping of payloads that flagged records refer to, before the flags are stored."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from outrider.dataops.journal.journal import Journal
from outrider.dataops.journal.stored_rows import read_rows
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.payloads.payloads import Payloads

log = logging.getLogger("outrider.worker")


def keep_flagged(journal: Journal, payloads: Payloads, effects: Effects) -> None:
    """Keep the payloads of newly flagged records; missing ones are logged."""
    if not payloads.may_refer or not effects.flags:
        return
    places = {*effects.flags.select("seq", "row"), *effects.members.select("seq", "row")}
    for seq, rows in _by_block(places):
        try:
            batch = read_rows(journal.get(seq).payload)
        except KeyError:
            continue  # expired
        for reason in payloads.keep(batch.take(np.array(rows))).values():
            log.warning("a payload of a flagged record of %s cannot be kept: %s", effects.model, reason)


def _by_block(places: Iterable[tuple[Any, ...]]) -> list[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for seq, row in sorted(places):
        found.setdefault(seq, []).append(row)
    return list(found.items())
