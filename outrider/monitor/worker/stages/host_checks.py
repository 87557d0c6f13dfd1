from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings
from outrider.assertions.windows.state import View
from outrider.monitor.host.client import NOTHING, Failure, HostVerdicts, Offered
from outrider.monitor.worker.judged import JudgedPart, JudgedRecords
from outrider.monitor.worker.slot_state import Views


class AssertionHost(Protocol):
    """Process of assertions and live tests; in a replay, this process."""

    offered: dict[str, list[Offered]]

    def check(
        self,
        batch: Batch,
        *,
        assertions: Sequence[str],
        live: Mapping[str, NDArray[np.int64]] = NOTHING,
        seq: NDArray[np.int64] | None = None,
        views: Mapping[str, Sequence[View]] | None = None,
    ) -> HostVerdicts: ...

    def check_answers(
        self, model: str, answered: Mapping[str, tuple[Batch, Batch]]
    ) -> tuple[dict[str, tuple[NDArray[np.bool_], NDArray[np.float64]]], list[Failure]]: ...


def check_records(
    host: AssertionHost,
    judged: JudgedRecords,
    seq: NDArray[np.int64],
    *,
    names: Sequence[str],
    views: Mapping[str, Views | Failure],
    live: Mapping[str, NDArray[np.int64]] = NOTHING,
) -> HostVerdicts:
    """Verdicts of assertions, windowed or not, and questions of live tests.

    ``names`` are in the order of their file, so a replay finds the same assertion at fault; ``views`` by
    assertion, others see the records themselves. Failures of windows come first.
    """
    failures = [given for given in views.values() if isinstance(given, Failure)]
    seen = {name: given for name, given in views.items() if isinstance(given, list)}
    plain = [name for name in names if name not in views and judged.rows]
    whole = [name for name in names if name in seen or (judged.is_whole and name in plain)]
    verdicts = HostVerdicts()
    if whole or live:
        verdicts = host.check(judged.batch, assertions=whole, live=live, seq=seq, views=seen)
    if plain and not judged.is_whole:
        _check_parts(host, judged, plain, verdicts)
    verdicts.failures = failures + verdicts.failures
    return verdicts


def _check_parts(
    host: AssertionHost, judged: JudgedRecords, names: Sequence[str], verdicts: HostVerdicts
) -> None:
    """Add the verdicts of single-record assertions, which see one side's answers at a time."""
    found: dict[str, list[tuple[JudgedPart, Findings]]] = {}
    failed: dict[str, Failure] = {}
    for part in judged.parts:
        of_part = host.check(part.batch, assertions=names)
        for name, seconds in of_part.seconds.items():
            verdicts.seconds[name] = verdicts.seconds.get(name, 0.0) + seconds
        for name, columns in of_part.reads.items():
            verdicts.reads[name] = [*verdicts.reads.get(name, ()), *columns]
        for name, findings in of_part.found.items():
            found.setdefault(name, []).append((part, findings))
        failed |= {failure.name: failure for failure in of_part.failures}
    verdicts.found |= {name: judged.found(parts) for name, parts in found.items()}
    verdicts.failures += failed.values()  # one strike for a unit, as ever
