"""Agreement of challenger and champion, by blocks of stored answers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine

from outrider.assertions import Batch
from outrider.assertions.comparison import PairedAnswers, StreamComparison, taken_back
from outrider.assertions.comparison.agreement import EVERYTHING, Agreement
from outrider.assertions.comparison.differences import (
    Ruler,
    answer_texts,
    deltas,
    differ,
    shared_measures,
    spread_of,
    subjects,
)
from outrider.assertions.comparison.looks import Look, thin
from outrider.assertions.comparison.text_properties import with_text_properties
from outrider.assertions.comparison.verdict import MeasureVerdict
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.ledger.answers import answered_blocks, read_answers
from outrider.dataops.ledger.cursors import judged_by_both
from outrider.dataops.ledger.records import weights_and_slices
from outrider.monitor.engine.asks import again_of
from outrider.monitor.settings.model_sections import ModelSettings

BLOCKS_AT_ONCE = 64
SPREAD_BLOCKS, LEAST_SCORES = 256, 32
EXAMPLES = 40


@dataclass(slots=True)
class ComparisonProgress:
    seq: int
    blocks: int = 0
    comparison: StreamComparison = field(default_factory=StreamComparison)
    examples: list[dict[str, Any]] = field(default_factory=list)
    looks: list[dict[str, Any]] = field(default_factory=list)
    spread: float | None = None
    """Spread of the champion's scores before the first look: a tolerance is a share of it."""

    @property
    def rows(self) -> int:
        counts = (t.differs.asked for (_, name), t in self.comparison.tallies.items() if name == EVERYTHING)
        return max(counts, default=0)

    @classmethod
    def of(cls, trial: Trial) -> "ComparisonProgress":
        found = trial.findings.get("progress")
        if not found:
            return cls(trial.after_seq)
        known = {name: found[name] for name in ("seq", "blocks", "examples")}
        comparison = StreamComparison.from_dict(found["comparison"])
        return cls(**known, comparison=comparison, looks=found["looks"], spread=found["spread"])

    def look(self, found: MeasureVerdict) -> None:
        """Keep a look with more records than the last."""
        if not self.looks or self.looks[-1]["records"] < found.rows:
            self.looks.append(asdict(Look(found.rows, found.value, found.low, found.high)))
            thin(self.looks)

    def to_dict(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "blocks": self.blocks,
            "comparison": self.comparison.to_dict(),
            "examples": self.examples,
            "looks": self.looks,
            "spread": self.spread,
        }


def ruler_of(settings: ModelSettings) -> Ruler:
    shadow = settings.shadow
    return Ruler(
        target=settings.target,
        is_text=settings.task == "generation",
        score_tolerance=shadow.score_tolerance,
        agree=shadow.agree,
    )


class Follower:
    def __init__(self, engine: Engine, settings: ModelSettings) -> None:
        self._engine = engine
        self._ruler = ruler_of(settings)

    def advance(self, trial: Trial, progress: ComparisonProgress) -> bool:
        """Compare the next blocks with both answers; False when there are none."""
        with self._engine.connect() as connection:
            model, both = trial.model, (trial.champion, trial.version)
            seqs = answered_blocks(
                connection, model, trial.version, after=progress.seq, limit=BLOCKS_AT_ONCE,
                until=judged_by_both(connection, model, trial.version),
            )  # fmt: skip
            if not seqs:
                return False
            if progress.spread is None:
                progress.spread = self._spread(connection, trial, seqs[-1])
                if progress.spread is None and len(seqs) < BLOCKS_AT_ONCE:
                    return False
            versions, first, last = (*both, *map(again_of, both)), seqs[0], seqs[-1]
            answers = read_answers(connection, model, versions, first=first, last=last)
            records = weights_and_slices(connection, model, first=first, last=last)
        blocks = [block for seq in seqs if (block := _block(seq, trial, answers, records)) is not None]
        progress.blocks += len(blocks)
        for alike in _alike(blocks):
            self._compare(progress, alike)
        progress.seq = seqs[-1]
        return True

    def _spread(self, connection: Connection, trial: Trial, last: int) -> float | None:
        """Spread of the champion's newest scores: None of few, 1 where there are none."""
        first = max(0, last - SPREAD_BLOCKS + 1)
        found = read_answers(connection, trial.model, (trial.champion,), first=first, last=last)
        answers = map(Batch.from_ipc, found.values())
        scores = np.concatenate([np.zeros(0), *(self._ruler.scores(each) for each in answers)])
        if len(scores) < LEAST_SCORES:
            return None if len(scores) else 1.0
        return spread_of(scores)

    def _compare(self, progress: ComparisonProgress, blocks: "Sequence[_Block]") -> None:
        import pandas as pd

        one, two = (Batch.concat([getattr(b, name) for b in blocks]) for name in ("champion", "challenger"))
        slices = np.concatenate([block.slices for block in blocks])
        # Pairs are of one slice, and by chance: those of records asked twice are like all others then.
        by_chance = pd.util.hash_array(np.asarray(one.keys, dtype=object), categorize=False)
        if progress.spread is None:
            progress.spread = self._ruler.at(one).spread
        ruler = replace(self._ruler, spread=progress.spread)
        order = np.lexsort((by_chance, slices.astype(np.str_)))
        one, two, names = one.take(order), two.take(order), slices[order].tolist()
        where = np.concatenate([[b.seq] * b.champion.rows for b in blocks])[order]
        weight = np.concatenate([b.weight for b in blocks])[order]
        asked, again, other = _twice(blocks, one)
        one, two = (with_text_properties(each, ruler) for each in (one, two))
        if again is not None and other is not None:
            again, other = (with_text_properties(each, ruler) for each in (again, other))
        pair = PairedAnswers(one, two, weight, names, asked, again, other)
        progress.comparison += StreamComparison.of(
            pair, ruler, slices=progress.comparison.slices, classes=progress.comparison.classes
        )
        shown = _examples(pair, where, ruler)
        progress.examples = [*shown, *progress.examples][:EXAMPLES]


def agreement_rows(
    comparison: StreamComparison, *, margin: float, agree: Sequence[str] = ()
) -> list[dict[str, Any]]:
    found = comparison.agreements(margin=margin, agree=agree)
    ordered = sorted(found, key=lambda key: (comparison.measures.index(key[0]), key[1]))
    return [{"measure": measure, "slice": name} | _shown(found[measure, name]) for measure, name in ordered]


def _shown(found: Agreement) -> dict[str, Any]:
    return {
        "rows": found.raw.rows,
        "raw": asdict(found.raw),
        "noise": asdict(found.noise) if found.noise.rows else None,
        "challenger_noise": asdict(found.challenger_noise) if found.challenger_noise.rows else None,
        "beyond": asdict(found.beyond),
        "verdict": found.verdict,
    }


@dataclass(frozen=True, slots=True)
class _Block:
    seq: int
    champion: Batch
    challenger: Batch
    again: tuple[Batch, Batch] | None
    """Second answers of both to records that were asked again."""
    weight: NDArray[np.float64]
    slices: NDArray[np.object_]


def _block(
    seq: int,
    trial: Trial,
    answers: Mapping[tuple[str, int], bytes],
    records: Mapping[int, Mapping[str, tuple[float, str]]],
) -> _Block | None:
    """Registered records of a block that both answered, or None."""
    import pandas as pd

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
    twice = [answers.get((again_of(version), seq)) for version in (trial.champion, trial.version)]
    again = [Batch.from_ipc(payload) for payload in twice if payload is not None]
    told = [known[key] for key in one.keys[kept]]
    return _Block(
        seq,
        one.take(kept),
        two.take(place[kept]),
        (again[0], again[1]) if len(again) == 2 else None,
        np.array([max(weight, 1.0) for weight, _ in told]),
        np.array([name for _, name in told], dtype=object),
    )


def _alike(blocks: "Sequence[_Block]") -> "list[list[_Block]]":
    found: dict[tuple[str, ...], list[_Block]] = {}
    for block in blocks:
        answers = (block.champion, block.challenger, *(block.again or ()))
        key = tuple(answer.schema_digest for answer in answers)
        found.setdefault(key, []).append(block)
    return list(found.values())


def _twice(blocks: "Sequence[_Block]", one: Batch) -> tuple[NDArray[np.intp], Batch | None, Batch | None]:
    """Rows of ``one`` that both models answered twice, and the second answers."""
    import pandas as pd

    there = [block.again for block in blocks if block.again is not None]
    if not there:
        return np.zeros(0, dtype=np.intp), None, None
    again = [Batch.concat([both[side] for both in there]) for side in (0, 1)]
    places = [pd.Index(answer.keys).get_indexer(pd.Index(one.keys)) for answer in again]
    asked = np.flatnonzero((places[0] >= 0) & (places[1] >= 0))
    return asked, again[0].take(places[0][asked]), again[1].take(places[1][asked])


def _examples(pair: PairedAnswers, where: NDArray[np.int64], ruler: Ruler) -> list[dict[str, Any]]:
    """Records on which the models differ, without those where one contradicts its own answer."""
    one, two = pair.champion, pair.challenger
    both = shared_measures(one, two, ruler)
    if not both:
        return []
    rows = subjects(both[0], one, ruler)
    apart = differ(both[0], one, two, ruler)
    if rows.shape[1] == 1:
        apart[taken_back(both[0], pair, ruler)] = False
    found = rows[apart][:, 0]
    chosen: list[int] = found[np.argsort(-where[found], kind="stable")][:EXAMPLES].tolist()
    if not chosen:
        return []
    far = deltas(one, two, ruler)[chosen] if "score" in both else np.full(len(chosen), np.nan)
    sides = zip(
        chosen, answer_texts(one, chosen, ruler), answer_texts(two, chosen, ruler), far.tolist(), strict=True
    )
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
