"""Sides of records, a joiner over a real journal, and what its blocks say of them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.join import Joined, Joiner
from outrider.monitor.intake.pending_blocks import Side
from outrider.monitor.intake.request_parts import HalfPart, RequestPart
from outrider.monitor.intake.schema_book import SchemaBook

WAIT_S = 30.0
SECOND = 1_000_000


class Bench:
    """What the writer's thread does, one commit at a time and with a clock of the test's.

    Parameters
    ----------
    path
        The journal's file; a second bench on it is the process after a restart.
    columns
        Declared columns of the model ``m``.
    """

    def __init__(self, path: Path, columns: dict[str, str] | None = None, *, now_s: float = 1000.0) -> None:
        self.journal = SqliteJournal(path)
        self.decoder = Decoder(SchemaBook({"m": columns or {}}, self.journal.schemas()))
        self.joiner = Joiner(self.journal, wait_s=lambda _: WAIT_S, schema_of=self.decoder.schema)
        self.now_us = int(now_s * SECOND)
        self.outcomes: dict[str, int] = {}

    def halves(self, *given: HalfPart) -> list[Any]:
        decoded = self.decoder.build([], kind="records", received_us=self.now_us, halves=given)
        assert not decoded.rejected
        return decoded.halves

    def send(self, *given: HalfPart) -> None:
        """One commit of these."""
        self.commit(self.joiner.join(self.halves(*given), self.now_us))

    def wait(self, seconds: float) -> None:
        """Let time pass, and release what is due."""
        self.now_us += int(seconds * SECOND)
        while (due := self.joiner.next_due_us) is not None and due <= self.now_us:
            released = self.joiner.release(self.now_us)
            if not released.drop:
                self.joiner.released()
                break
            self.commit(released)

    def commit(self, joined: Joined) -> None:
        entries = [*merge(joined.blocks), *joined.unreadable]
        self.journal.append(
            entries, self.now_us, keep=joined.keep, drop=joined.drop, forget_us=joined.forget_us
        )
        self.joiner.committed(joined)
        for (_, outcome), count in joined.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count

    def records(self) -> list[dict[str, Any]]:
        """Every record in the journal, in order."""
        blocks = [block for block in self.journal.read(0, limit=10_000) if block.kind == "records"]
        return [record for block in blocks for record in Batch.from_ipc(block.payload).to_records()]

    def close(self) -> None:
        self.journal.close()


def half(side: Side, rows: Iterable[dict[str, Any]], *, key: str = "") -> HalfPart:
    """A side of records given as in ``POST /v1/records``."""
    listed = list(rows)
    return HalfPart(key, side, part(listed))


def request(id_: str, *, key: str = "", **inputs: Any) -> HalfPart:
    return half("request", [{"id": id_, "inputs": inputs or {"x": 1}}], key=key)


def response(id_: str, *, key: str = "", **outputs: Any) -> HalfPart:
    return half("response", [{"id": id_, "outputs": outputs or {"y": 0.5}}], key=key)


def part(rows: Sequence[dict[str, Any]]) -> RequestPart:
    system: dict[str, Any] = {
        name: [row.get(name) for row in rows]
        for name in ("id", "ts", "entity", "version", "weight")
        if any(name in row for row in rows)
    }
    fields = {name: [row.get(name) for row in rows] for name in ("inputs", "outputs", "attrs")}
    return RequestPart("m", list(range(len(rows))), system, fields)
