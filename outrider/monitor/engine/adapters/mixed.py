"""Adapters of one base, each answering its rows, in one pass."""

import logging
from collections.abc import Mapping, Sequence

import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner, base_of, narrowed, refuse_idle, with_module
from outrider.dataops.model_kinds.adapter_mixing import VariantSpan
from outrider.dataops.model_kinds.mixture import Mixture
from outrider.dataops.model_kinds.runner import EncodedRows, Outputs, Runner, Tensors
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import Segment

log = logging.getLogger("outrider.engine")
CLOSE, CLOSE_NARROW = 1e-3, 3e-2
"""Largest difference of a mixed pass from separate ones, as a share of the largest answer, in float32 and
narrower types."""
AGREEING = 0.5
"""Share of a version's rows that must be close: between equally likely words, rounding decides."""


class Mixed:
    """Adapters of one base, and the base itself, run together.

    The first batch is also answered version by version; where that differs, the module does not keep rows
    apart (experts collect tokens of all rows), and each version has its own pass.
    """

    is_mixed = True

    def __init__(self, runners: Mapping[Name, Runner], *, is_stacked: bool | None = None) -> None:
        adapted = [(name, r) for name, r in runners.items() if isinstance(r, AdaptedRunner)]
        plain = [(name, r) for name, r in runners.items() if not isinstance(r, AdaptedRunner)]
        self.names = tuple(name for name, _ in [*adapted, *plain])
        self._runners = dict(runners)
        self._variants: dict[Name, int | None] = {name: at for at, (name, _) in enumerate(adapted)}
        self._variants |= {name: None for name, _ in plain}
        first = base_of([*runners.values()][-1] if not plain else plain[0][1])  # whose heads are the base's
        self.device = first.device
        adapters = [runner.adapter for _, runner in adapted]
        self.mixture = Mixture(first.module, adapters, is_stacked=is_stacked)
        self._runner = with_module(first, self.mixture.module)
        self._is_precise = next(first.module.parameters()).dtype in (torch.float32, torch.float64)
        self.trunk_forwards = self.head_forwards = 0
        self._has_run = self._is_checked = False
        self._is_together = True

    def encode(self, name: Name, batch: Batch, /) -> EncodedRows:
        return self._runners[name].encode(batch)

    def run(self, tensors: Tensors, segments: Sequence[Segment], /) -> list[Tensors]:
        if not self._is_checked:
            return self._first(tensors, segments)
        if not self._is_together:
            return self._apart(tensors, segments)
        return self._mix(tensors, segments)

    def decode(self, name: Name, answers: Tensors, /) -> Outputs:
        return self._runners[name].decode(narrowed(answers, self.mixture.width(self._variants[name])))

    def _mix(self, tensors: Tensors, segments: Sequence[Segment]) -> list[Tensors]:
        rows = len(next(iter(tensors.values())))
        self.mixture.begin(rows, self._cuts(segments, rows))
        self._count(segments)
        answers = self._runner.run(tensors)
        return [{n: t[s.start : s.stop] for n, t in answers.items()} for s in segments]

    def _count(self, segments: Sequence[Segment]) -> None:
        self.trunk_forwards += 1
        self.head_forwards += len({segment.name for segment in segments})

    def _cuts(self, segments: Sequence[Segment], rows: int) -> list[VariantSpan]:
        """Cuts that cover the batch; rows after the last segment are padding and count as the last
        version's."""
        cuts = [VariantSpan(self._variants[s.name], s.start, s.stop) for s in segments]
        last = cuts[-1]
        return [*cuts[:-1], VariantSpan(last.variant, last.start, rows)]

    def _apart(self, tensors: Tensors, segments: Sequence[Segment]) -> list[Tensors]:
        found = []
        for cut in segments:
            rows = {name: t[cut.start : cut.stop] for name, t in tensors.items()}
            found += self._mix(rows, [Segment(cut.name, 0, cut.stop - cut.start)])
        return found

    def _first(self, tensors: Tensors, segments: Sequence[Segment]) -> list[Tensors]:
        apart = self._apart(tensors, segments)
        self._refuse_idle()
        if len({segment.name for segment in segments}) > 1:
            self._is_checked = True
            self._is_together = self._agrees(tensors, segments, apart)
            if not self._is_together:
                log.warning("%s cannot share a pass; each has its own", self._called)
        return apart

    def _refuse_idle(self) -> None:
        """Check, after the first pass, that it called every layer with adapters."""
        if not self._has_run:
            refuse_idle(self.mixture, self._called)
            self._has_run = True

    @property
    def _called(self) -> str:
        return ", ".join(f"{model}@{version}" for model, version in self.names)

    def _agrees(self, tensors: Tensors, segments: Sequence[Segment], apart: Sequence[Tensors]) -> bool:
        try:
            mixed = self._mix(tensors, segments)
        except RuntimeError as error:
            log.warning("a pass of several adapters: %s", error)
            return False
        close = CLOSE if self._is_precise else CLOSE_NARROW
        return all(
            _agreement(self._own(cut, one), self._own(cut, alone), close) >= AGREEING
            for cut, one, alone in zip(segments, mixed, apart, strict=True)
        )

    def _own(self, cut: Segment, answers: Tensors) -> list[torch.Tensor]:
        """Answers of a version without the padding of a narrower head."""
        return list(narrowed(answers, self.mixture.width(self._variants[cut.name])).values())


class IndexedMixed(Mixed):
    @property
    def is_indexed(self) -> bool:
        """True once a joint pass was found equal to separate ones."""
        return self._is_checked and self._is_together

    def index(self, segments: Sequence[Segment], rows: int, /) -> dict[str, torch.Tensor]:
        """Variant of each row, and the row at which each variant ends."""
        self._count(segments)
        variants = self.mixture.mixing.variants
        of_rows = torch.full((rows,), variants, dtype=torch.int64)
        ends = torch.zeros(variants + 1, dtype=torch.int32)
        at = 0
        for cut in self._cuts(segments, rows):
            place = variants if cut.variant is None else cut.variant
            of_rows[cut.start : cut.stop] = place
            ends[place] = at = cut.stop
        ends[variants] = rows
        return {"of_rows": of_rows, "ends": ends.cummax(0).values if at else ends}

    def run_indexed(self, tensors: Tensors, index: Tensors, /) -> Tensors:
        self.mixture.mixing.begin_indexed(index["of_rows"], index["ends"])
        answers = self._runner.run(tensors)
        self._refuse_idle()
        return answers


def mixed(runners: Mapping[Name, Runner]) -> Mixed:
    found = Mixed(runners)
    return IndexedMixed(runners) if found.mixture.is_indexable else found


def _agreement(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor], close: float) -> float:
    same = torch.ones(len(one[0]), dtype=torch.bool, device=one[0].device)
    for left, right in zip(one, other, strict=True):
        if left.shape != right.shape:
            return 0.0
        near = left == right
        if left.dtype.is_floating_point:
            scale = max(float(right.abs().amax()), 1.0) if right.numel() else 1.0
            near = torch.isclose(left.float(), right.float(), rtol=0.0, atol=close * scale, equal_nan=True)
        same &= near.flatten(1).all(1) if near.ndim > 1 else near
    return float(same.float().mean())
