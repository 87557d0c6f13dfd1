"""What the promotion gate is shown about a candidate: suites, held-out rows, live traffic."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, func, select

from outrider.assertions import Batch, Predictor
from outrider.assertions.estimation import Estimate, estimate_share
from outrider.behavioral_tests import load_suite
from outrider.dataops.estimates import Weight
from outrider.dataops.gate import PairedEvidence, ShadowEvidence, SuiteEvidence
from outrider.dataops.tables import Answer, AssertionRow, Cursor, Flag, Record, table_of

_RECORD = table_of(Record)
_FLAG = table_of(Flag)
_ASSERTION = table_of(AssertionRow)
_ANSWER = table_of(Answer)
_CURSOR = table_of(Cursor)


def suite_evidence(
    paths: Sequence[Path], champion: Predictor, candidate: Predictor, *, cases: Batch | None, seed: int = 0
) -> list[SuiteEvidence]:
    """Every behavioral test of the files, asked of both; ``cases`` feed tests that have none of their own."""
    found = []
    for path in paths:
        suite = load_suite(path)
        pairs = zip(
            suite.run(champion, cases=cases, seed=seed),
            suite.run(candidate, cases=cases, seed=seed),
            strict=True,
        )
        found += [
            SuiteEvidence(new.name, new.tolerance, old.cases, old.failures, new.cases, new.failures)
            for old, new in pairs
            if old.cases or new.cases
        ]
    return found


def paired_evidence(
    name: str,
    batch: Batch,
    target: str,
    champion: Predictor,
    candidate: Predictor,
    *,
    weights: Mapping[str, Weight] | None = None,
) -> PairedEvidence:
    """Both models' answers to the labelled rows of a dataset.

    Parameters
    ----------
    weights
        What records stand for that were chosen to be labelled; rows without are left out of the shares.
    """
    truth = _comparable(batch.column(f"label.{target}"))
    old, new = (
        _comparable(predict(batch)[target]) == truth if batch.rows else np.zeros(0, dtype=np.bool_)
        for predict in (champion, candidate)
    )
    return PairedEvidence(
        dataset=name,
        rows=batch.rows,
        champion_correct=int(old.sum()),
        candidate_correct=int(new.sum()),
        only_champion=int((old & ~new).sum()),
        only_candidate=int((new & ~old).sum()),
        champion_share=_weighted_share(batch, old, weights or {}),
        candidate_share=_weighted_share(batch, new, weights or {}),
    )


def _weighted_share(
    batch: Batch, correct: NDArray[np.bool_], weights: Mapping[str, Weight]
) -> Estimate | None:
    ids = batch.column("id").tolist() if batch.rows and weights else []
    known = [(row, weights[record]) for row, record in enumerate(ids) if record in weights]
    if not any(weight.weight > 0 for _, weight in known):
        return None
    return estimate_share(
        correct[[row for row, _ in known]],
        [weight.weight for _, weight in known],
        audit=[weight.is_audit for _, weight in known],
    )


def _comparable(values: ArrayLike) -> NDArray[np.str_]:
    """Classes as text, numbers by value: 3, 3.0 and "3" agree, as True and 1 do."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf" and (array == np.round(array)).all():
        array = array.astype(np.int64)
    return array.astype(str)


def shadow_evidence(connection: Connection, model: str, candidate: str) -> ShadowEvidence:
    """Flags of both on the blocks that the candidate has answered and both have been judged on.

    Live behavioral tests ask the champion only: their flags are left out.
    """
    judged = connection.scalars(
        select(_CURSOR.c.seq).where(_CURSOR.c.model == model, _CURSOR.c.slot.in_(("champion", candidate)))
    ).all()
    if len(judged) < 2:
        return ShadowEvidence(0, 0, 0)
    blocks = (
        select(_ANSWER.c.seq)
        .where(_ANSWER.c.model == model, _ANSWER.c.version == candidate, _ANSWER.c.seq <= min(judged))
        .scalar_subquery()
    )
    live_tests = select(_ASSERTION.c.name).where(
        _ASSERTION.c.model == model, _ASSERTION.c.kind == "live_test"
    )
    rows = connection.scalar(select(func.count()).where(_RECORD.c.model == model, _RECORD.c.seq.in_(blocks)))
    counts = connection.execute(
        select(_FLAG.c.slot, func.count())
        .where(_FLAG.c.model == model, _FLAG.c.seq.in_(blocks), _FLAG.c.assertion.not_in(live_tests))
        .group_by(_FLAG.c.slot)
    )
    flags = {row[0]: int(row[1]) for row in counts}
    return ShadowEvidence(int(rows or 0), flags.get("champion", 0), flags.get(candidate, 0))
