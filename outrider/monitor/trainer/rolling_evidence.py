"""Losses of all versions of a model on the latest labelled rows."""

import logging
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions import Batch, Predictor
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.collect import LabelledPlace, read_labelled
from outrider.dataops.improvement.rolling import RollingEvidence, VersionLosses, compare_versions
from outrider.dataops.improvement.unseen_rows import (
    SeenRows,
    input_digests,
    labelled_records,
    reader_of,
    seen_rows,
)
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.clock import HOUR_US
from outrider.monitor.settings.gate_sections import RollingSettings
from outrider.monitor.settings.payloads import open_payloads

from .context import JobContext
from .scoring import AnswerScoring, LossFault, RowLosses

log = logging.getLogger(__name__)
MOST_VERSIONS = 50


def rolling_evidence(
    context: JobContext,
    connection: Connection,
    model: str,
    settings: RollingSettings,
    *,
    champion: str,
    scoring: AnswerScoring,
    load: Callable[[str], Predictor],
    also: str | None = None,
) -> RollingEvidence:
    """Compare the champion with all loadable versions, each on the latest labelled rows that neither
    was trained on; ``also`` is asked although it answers elsewhere, at a price."""
    others, left_out = _contenders(connection, model, champion, also)
    records, requested = labelled_records(connection, model)
    if requested:
        left_out.append(f"{requested} labels that were asked for by a policy are left out")

    def table(name: str, part: str | None) -> pa.Table:
        dataset, _, number = name.rpartition("@")
        version = datasets.get(connection, dataset, int(number))
        return datasets.read_table(connection, context.objects, version, part=part)

    seen = seen_rows(connection, model, (champion, *others), reader_of(table))
    latest = {
        name: np.flatnonzero(~(seen[champion].knows(records) | seen[name].knows(records)))[-settings.rows :]
        for name in others
    }
    wanted = [records[at] for at in sorted({int(at) for rows in latest.values() for at in rows})]
    batch = None
    if wanted:
        own = context.model(model)
        batch = read_labelled(
            connection,
            context.journal,
            wanted,
            target=own.target,
            classes=own.classes,
            inputs=own.declared_inputs,
            payloads=open_payloads(context.settings, model),
        )
    rows: list[VersionLosses] = []
    if batch is not None:
        answers = load(champion)(batch)
        places = _Rows(batch, records)
        for name in others:
            context.check_stop()
            try:
                losses = scoring.of(batch, answers, load(name)(batch), pause=context.check_stop)
            except LossFault as fault:
                left_out.append(f"version {name}: {fault}")
                continue
            except Exception as error:  # a version that cannot be asked any more hurts only itself
                log.exception("%s: version %s", model, name)
                left_out.append(f"version {name} cannot be asked: {type(error).__name__}")
                continue
            if isinstance(losses, RowLosses):
                rows.append(places.of(name, losses, latest[name], (seen[champion], seen[name])))
    return compare_versions(
        rows, rows=settings.rows, p=settings.p, champion=champion, left_out=tuple(left_out)
    )


class _Rows:
    def __init__(self, batch: Batch, records: Sequence[LabelledPlace]) -> None:
        self._at = {key: row for row, key in enumerate(map(str, batch.keys))}
        self._records = records
        self._digests = input_digests(pa.Table.from_batches([batch.to_arrow()]))
        names: dict[str | None, int] = {None: 0}
        numbers = [names.setdefault(one.entity, len(names)) for one in records]
        self._entity = np.array(numbers, dtype=np.int64)
        self._hour = np.array([one.ts_us // HOUR_US for one in records], dtype=np.int64)

    def of(
        self, version: str, losses: RowLosses, latest: NDArray[np.intp], seen: tuple[SeenRows, SeenRows]
    ) -> VersionLosses:
        """Losses on the latest records, without inputs that either has learned from."""
        known = seen[0].knows_inputs(self._digests) | seen[1].knows_inputs(self._digests)
        of = [(at, self._at[self._records[at].id]) for at in latest if self._records[at].id in self._at]
        of = [(at, row) for at, row in of if not known[row]]
        places, rows = (np.array([pair[side] for pair in of], dtype=np.int64) for side in (0, 1))
        champion, own = losses.champion[rows], losses.candidate[rows]
        return VersionLosses(version, champion, own, self._entity[places], self._hour[places])


def _contenders(
    connection: Connection, model: str, champion: str, also: str | None
) -> tuple[list[str], list[str]]:
    """Versions to be compared, and sentences on the others."""
    found, left_out = list[str](), list[str]()
    for one in models.all_versions(connection, model)[::-1]:
        if one.version == champion or one.status == "failed":
            continue
        if Source.from_json(one.source).kind == "endpoint" and one.version != also:
            left_out.append(f"version {one.version} answers elsewhere and is not asked again")
        elif len(found) == MOST_VERSIONS:
            left_out.append(f"version {one.version} and all before: {MOST_VERSIONS} newer ones are compared")
            break
        else:
            found.append(one.version)
    return found[::-1], left_out
