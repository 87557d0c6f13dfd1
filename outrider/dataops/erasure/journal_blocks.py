"""Blocks of the journal without erased rows, whose places stay."""

from collections.abc import Iterator, Mapping

import numpy as np

from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.stored_rows import read_stored, without_rows

from .target import Found

AT_ONCE = 256


def erase_blocks(journal: SqliteJournal, found: Found) -> None:
    places: dict[int, list[int]] = {}
    for of_kind in (found.records, found.labels):
        for of_model in of_kind.values():
            for seq, rows in of_model.items():
                places.setdefault(seq, []).extend(rows)
    for part in _parts(places):
        journal.erase(dict(_tombstones(journal, part)))
    journal.erase({}, halves=found.halves, notes=found.notes)


def _tombstones(
    journal: SqliteJournal, places: Mapping[int, list[int]]
) -> Iterator[tuple[int, tuple[int, bytes]]]:
    for seq, rows in places.items():
        try:
            block = journal.get(seq)
        except KeyError:
            continue  # expired meanwhile
        payload = without_rows(block.payload, np.array(sorted(rows), dtype=np.intp))
        left = len(read_stored(payload).rows) if block.kind == "kept" else block.rows
        yield seq, (left, payload)


def _parts(places: Mapping[int, list[int]]) -> Iterator[dict[int, list[int]]]:
    seqs = sorted(places)
    for start in range(0, len(seqs), AT_ONCE):
        yield {seq: places[seq] for seq in seqs[start : start + AT_ONCE]}
