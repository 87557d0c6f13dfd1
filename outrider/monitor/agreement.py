"""What is known of a challenger beside the champion: stored answers of both, followed block by block."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, select

from outrider.assertions import Batch
from outrider.assertions.agreement import EVERYTHING, Agreement, Share
from outrider.assertions.comparison import Comparison, Paired, to_ask_again
from outrider.assertions.differences import Ruler, deltas, differ, said, shared_measures, subjects
from outrider.dataops.flagged import Blocks
from outrider.dataops.shadow_tests import Trial
from outrider.dataops.stored_rows import read_rows
from outrider.dataops.tables import Answer, Cursor, Record, table_of

from .config import ModelSettings
from .engine.asks import Outputs

log = logging.getLogger(__name__)
_ANSWER = table_of(Answer)
_RECORD = table_of(Record)
_CURSOR = table_of(Cursor)

AGAIN = "~again:"
"""Before the version, in the name under which second answers of a champion are stored."""
BLOCKS_AT_ONCE = 64
EXAMPLES = 40
FIRST_BLOCKS = 20
"""Where none of so many blocks was answered twice, this module asks a second time itself."""
FIRST_ROWS = 256
"""As many records may be asked about again before the share counts."""

Mode = Literal["all", "differing", "none"]
AskAgain = Callable[[str, Batch], Outputs]
"""(champion's version, records) -> its answers."""


@dataclass(slots=True)
class Progress:
    """State of a comparison, kept in ``shadow_test.findings``.

    Attributes
    ----------
    seq
        Last block that was looked at.
    stored_again
        Blocks whose second answers the engine had stored.
    asked
        Records that were asked about again here.
    examples
        Newest records on which both differ.
    """

    seq: int
    blocks: int = 0
    stored_again: int = 0
    asked: int = 0
    comparison: Comparison = field(default_factory=Comparison)
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Records that were compared."""
        counts = (t.differs.asked for (_, name), t in self.comparison.tallies.items() if name == EVERYTHING)
        return max(counts, default=0)

    @classmethod
    def of(cls, trial: Trial) -> "Progress":
        """As it was saved, or the beginning."""
        found = trial.findings.get("progress")
        if not found:
            return cls(trial.after_seq)
        return cls(**found | {"comparison": Comparison.from_dict(found["comparison"])})

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "seq": self.seq,
            "blocks": self.blocks,
            "stored_again": self.stored_again,
            "asked": self.asked,
            "comparison": self.comparison.to_dict(),
            "examples": self.examples,
        }


def ruler_of(settings: ModelSettings) -> Ruler:
    """What is read of a model's answers, and what counts as different."""
    shadow = settings.shadow
    return Ruler(
        target=settings.target,
        is_text=settings.task == "generation",
        score_tolerance=shadow.score_tolerance,
        text_overlap=shadow.text_overlap,
    )


class Follower:
    """Compares what has been answered since it last looked.

    Parameters
    ----------
    ask
        Asks a champion a second time; None where nobody can. Used where the engine stores no second answers,
        and with ``shadow.recheck``.
    """

    def __init__(
        self, engine: Engine, blocks: Blocks, settings: ModelSettings, ask: AskAgain | None = None
    ) -> None:
        self._engine = engine
        self._blocks = blocks
        self._settings = settings
        self._ruler = ruler_of(settings)
        self._ask = ask

    def advance(self, trial: Trial, progress: Progress) -> bool:
        """Compare the next blocks that both have answered; False when there were none."""
        with self._engine.connect() as connection:
            until = _answered_until(connection, trial)
            seqs = _next_blocks(connection, trial, progress.seq, until)
            answers = _read_answers(connection, trial, seqs)
            records = _read_records(connection, trial.model, seqs)
        if not seqs:
            return False
        parts: dict[Mode, list[_Block]] = {"all": [], "differing": [], "none": []}
        for seq in seqs:
            block = _block(seq, trial, answers, records)
            if block is not None:
                parts[self._mode(block, progress)].append(block)
                progress.blocks += 1
                progress.stored_again += block.again is not None
        for mode, found in parts.items():
            for alike in _alike(found):
                self._compare(trial, progress, mode, alike)
        progress.seq = seqs[-1]
        return True

    def _mode(self, block: "_Block", progress: Progress) -> Mode:
        """What the champion is asked about again of a block; its answers have no say in that."""
        if block.again is not None:
            return "all"
        rate = self._settings.shadow.noise_rate
        is_missing = not progress.stored_again and progress.blocks >= FIRST_BLOCKS and rate > 0
        if self._ask is None or not (is_missing or self._settings.shadow.recheck):
            return "none"
        if is_missing and _drawn(block.seq, rate):
            return "all"
        return "differing" if progress.asked <= FIRST_ROWS + rate * progress.rows else "none"

    def _compare(self, trial: Trial, progress: Progress, mode: Mode, blocks: "Sequence[_Block]") -> None:
        one, two = (Batch.concat([getattr(b, name) for b in blocks]) for name in ("champion", "challenger"))
        slices = np.concatenate([block.slices for block in blocks])
        order = np.argsort(slices.astype(np.str_), kind="stable")  # pairs of records are of one slice
        one, two, names = one.take(order), two.take(order), slices[order].tolist()
        where = np.concatenate([[b.seq] * b.champion.rows for b in blocks])[order]
        weight = np.concatenate([b.weight for b in blocks])[order]
        again, known = self._again(trial, progress, mode, blocks, one, two, where)
        pair = Paired(one, two, weight, names, "none" if again is None else mode, again, known)
        progress.comparison += Comparison.of(pair, self._ruler, slices=progress.comparison.slices)
        shown = _examples(pair, where, self._ruler)
        progress.examples = [*shown, *progress.examples][:EXAMPLES]

    def _again(
        self,
        trial: Trial,
        progress: Progress,
        mode: Mode,
        blocks: "Sequence[_Block]",
        one: Batch,
        two: Batch,
        where: NDArray[np.int64],
    ) -> tuple[Batch | None, NDArray[np.bool_] | None]:
        """Second answers of the champion aligned with ``one``, and the rows that have one."""
        if mode == "none":
            return None, None
        stored = [block.again for block in blocks]
        if mode == "all" and all(part is not None for part in stored):
            found = Batch.concat([part for part in stored if part is not None])
            return _aligned(found, one)
        rows = np.arange(one.rows) if mode == "all" else to_ask_again(one, two, self._ruler)
        if not len(rows):
            return one, np.zeros(one.rows, dtype=np.bool_)
        answer = self._asked(trial, one, where, rows)
        if answer is None:
            return None, None
        progress.asked += len(rows)
        return _aligned(answer, one)

    def _asked(
        self, trial: Trial, one: Batch, where: NDArray[np.int64], rows: NDArray[np.intp]
    ) -> Batch | None:
        """Ask the champion about some records, from the journal; None where that cannot be done."""
        assert self._ask is not None
        wanted = set(one.keys[rows].tolist())
        try:
            found = [read_rows(self._blocks.get(seq).payload) for seq in np.unique(where[rows]).tolist()]
            inputs = [b.take(np.flatnonzero([key in wanted for key in b.keys.tolist()])) for b in found]
            parts = []
            for part in _same_schema(inputs):
                # Halves of one and two thirds: no batch has the shape in which the champion answered first.
                cut = max(1, part.rows // 3)
                for piece in (part.slice(0, cut), part.slice(cut)) if part.rows > 1 else (part,):
                    columns = {f"outputs.{n}": v for n, v in self._ask(trial.champion, piece).items()}
                    columns["id"] = piece.arrow("id")
                    parts.append(Batch.from_columns(columns, model=trial.model, rows=piece.rows))
            return Batch.concat(parts)
        except Exception as error:  # noqa: BLE001 - a model may raise anything; then the floor stays unknown
            log.warning("%s@%s cannot be asked again: %r", trial.model, trial.champion, error)
            return None


def agreement_rows(comparison: Comparison, *, margin: float) -> list[dict[str, Any]]:
    """Agreement by measure and slice, all records first, as the API shows it."""
    found = comparison.agreements(margin=margin)
    ordered = sorted(found, key=lambda key: (comparison.measures.index(key[0]), key[1]))
    return [{"measure": measure, "slice": name} | _shown(found[measure, name]) for measure, name in ordered]


def deciding(comparison: Comparison, *, margin: float) -> Agreement | None:
    """Agreement on all records by what decides for the task; None without a record."""
    if not comparison.measures:
        return None
    return comparison.agreements(margin=margin)[comparison.measures[0], EVERYTHING]


def _shown(found: Agreement) -> dict[str, Any]:
    return {
        "rows": found.raw.rows,
        "raw": _share(found.raw),
        "noise": _share(found.noise) if found.noise.rows else None,
        "beyond": _share(found.beyond),
        "verdict": found.verdict,
    }


def _share(share: Share) -> dict[str, Any]:
    return {"value": share.value, "low": share.low, "high": share.high, "rows": share.rows}


# ---- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """Answers to one journal block, row by row."""

    seq: int
    champion: Batch
    challenger: Batch
    again: Batch | None
    weight: NDArray[np.float64]
    slices: NDArray[np.object_]


def _answered_until(connection: Connection, trial: Trial) -> int:
    """Last block that both have been judged on."""
    query = select(_CURSOR.c.seq).where(
        _CURSOR.c.model == trial.model, _CURSOR.c.slot.in_(("champion", trial.version))
    )
    cursors = connection.scalars(query).all()
    return min(cursors) if len(cursors) == 2 else 0


def _next_blocks(connection: Connection, trial: Trial, after: int, until: int) -> list[int]:
    query = (
        select(_ANSWER.c.seq)
        .where(
            _ANSWER.c.model == trial.model,
            _ANSWER.c.version == trial.version,
            _ANSWER.c.seq > after,
            _ANSWER.c.seq <= until,
        )
        .order_by(_ANSWER.c.seq)
        .limit(BLOCKS_AT_ONCE)
    )
    return list(connection.scalars(query))


def _read_answers(connection: Connection, trial: Trial, seqs: Sequence[int]) -> dict[tuple[str, int], bytes]:
    if not seqs:
        return {}
    versions = (trial.champion, trial.version, f"{AGAIN}{trial.champion}")
    query = select(_ANSWER.c.version, _ANSWER.c.seq, _ANSWER.c.payload).where(
        _ANSWER.c.model == trial.model,
        _ANSWER.c.version.in_(versions),
        _ANSWER.c.seq >= seqs[0],
        _ANSWER.c.seq <= seqs[-1],
    )
    return {(row.version, row.seq): row.payload for row in connection.execute(query)}


def _read_records(
    connection: Connection, model: str, seqs: Sequence[int]
) -> dict[int, dict[str, tuple[float, str]]]:
    """Weight and slice of registered records, by block and id."""
    found: dict[int, dict[str, tuple[float, str]]] = {}
    if not seqs:
        return found
    query = select(_RECORD.c.seq, _RECORD.c.id, _RECORD.c.weight, _RECORD.c.slice).where(
        _RECORD.c.model == model, _RECORD.c.seq >= seqs[0], _RECORD.c.seq <= seqs[-1]
    )
    for row in connection.execute(query):
        found.setdefault(row.seq, {})[row.id] = (row.weight, row.slice or "")
    return found


def _block(
    seq: int,
    trial: Trial,
    answers: Mapping[tuple[str, int], bytes],
    records: Mapping[int, Mapping[str, tuple[float, str]]],
) -> _Block | None:
    """Records of a block that are registered and that both answered; None where there is none."""
    both = [answers.get((version, seq)) for version in (trial.champion, trial.version)]
    known = records.get(seq, {})
    if both[0] is None or both[1] is None:
        return None
    one, two = Batch.from_ipc(both[0]), Batch.from_ipc(both[1])
    place = pd.Index(two.keys).get_indexer(pd.Index(one.keys))
    both_have = [at >= 0 and key in known for at, key in zip(place.tolist(), one.keys.tolist(), strict=True)]
    kept = np.flatnonzero(both_have)
    if not len(kept):
        return None
    again = answers.get((f"{AGAIN}{trial.champion}", seq))
    told = [known[key] for key in one.keys[kept]]
    return _Block(
        seq,
        one.take(kept),
        two.take(place[kept]),
        None if again is None else Batch.from_ipc(again),
        np.array([max(weight, 1.0) for weight, _ in told]),
        np.array([name for _, name in told], dtype=object),
    )


def _alike(blocks: "Sequence[_Block]") -> "list[list[_Block]]":
    """Blocks whose answers have the same columns, together."""
    found: dict[tuple[str, ...], list[_Block]] = {}
    for block in blocks:
        again = "" if block.again is None else block.again.schema_digest
        key = (block.champion.schema_digest, block.challenger.schema_digest, again)
        found.setdefault(key, []).append(block)
    return list(found.values())


def _same_schema(batches: Sequence[Batch]) -> list[Batch]:
    found: dict[str, list[Batch]] = {}
    for batch in batches:
        if batch.rows:
            found.setdefault(batch.schema_digest, []).append(batch)
    return [Batch.concat(parts) for parts in found.values()]


def _aligned(answer: Batch, one: Batch) -> tuple[Batch, NDArray[np.bool_]]:
    """Rows of an answer in the order of ``one``, and which of them there are; the rest repeat its first."""
    place = pd.Index(answer.keys).get_indexer(pd.Index(one.keys))
    known = np.asarray(place >= 0)
    return answer.take(np.where(known, place, 0)), known


def _examples(pair: Paired, where: NDArray[np.int64], ruler: Ruler) -> list[dict[str, Any]]:
    """Records on which the models differ in what decides, beyond what the champion takes back itself."""
    one, two = pair.champion, pair.challenger
    both = shared_measures(one, two, ruler)
    if not both:
        return []
    rows = subjects(both[0], one, ruler)
    apart = differ(both[0], one, two, ruler)
    if pair.again is not None and pair.known is not None:
        apart &= ~(pair.known[rows].all(axis=1) & differ(both[0], one, pair.again, ruler))
    chosen: list[int] = rows[apart][:, 0].tolist()[::-1][:EXAMPLES]
    if not chosen:
        return []
    far = deltas(one, two, ruler)[chosen] if "score" in both else np.full(len(chosen), np.nan)
    sides = zip(chosen, said(one, chosen, ruler), said(two, chosen, ruler), far.tolist(), strict=True)
    return [
        {
            "id": str(one.keys[row]),
            "seq": int(where[row]),
            "slice": pair.slices[row],
            "champion": first[0],
            "champion_score": first[1],
            "challenger": second[0],
            "challenger_score": second[1],
            "apart": apart_by if np.isfinite(apart_by) else None,
        }
        for row, first, second, apart_by in sides
    ]


def _drawn(seq: int, rate: float) -> bool:
    """Whether a block is of the sample that is asked twice; a function of its number alone."""
    return (seq * 2_654_435_761) % 2**32 / 2**32 < rate
