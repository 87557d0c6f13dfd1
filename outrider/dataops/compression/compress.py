"""Whole compression: search, table, choice, and a separate fresh measurement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.errors import OutriderError

from .bench import Bench, CompressionTask
from .evaluated import Evaluated, best
from .fresh_measurement import Confirmed
from .search import best_first
from .slo import Slo
from .variant import CHAMPION, PRUNINGS, RECIPES, SAME, Variant, neighbours

BUDGET = 12


@dataclass(frozen=True, slots=True)
class Compressed:
    """Compression of one champion: variants tried, and result."""

    name: str
    device: str
    rows: int
    slo: Slo
    champion: Evaluated
    found: Sequence[Evaluated]
    """Variants in the order in which they were tried."""
    chosen: Evaluated | None
    """The best that keeps every bound, here and in the fresh process; None where none does."""
    confirmed: Confirmed | None
    """Its figures in the fresh process, on records that the search did not see."""
    refused: dict[str, list[str]]
    """Why variants that passed here were refused there, by name."""
    source: Source | None = None
    weights: bytes | None = field(default=None, repr=False)
    """``source`` and ``weights``: what the chosen one is made of; weights are None where they are those of
    the champion's folder."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        cost = self.champion.cost
        assert cost is not None
        return {
            "model": self.name,
            "device": self.device,
            "rows": self.rows,
            "slo": dict(self.slo.bounds),
            "champion": self.champion.to_dict(cost, self.slo),
            "variants": [each.to_dict(cost, self.slo) for each in self.found],
            "chosen": None if self.chosen is None else self.chosen.variant.name,
            "confirmed": None if self.confirmed is None else self.confirmed.to_dict(),
            "refused": self.refused,
        }


def compress(
    task: CompressionTask,
    *,
    slo: Slo,
    unseen: Batch,
    budget: int = BUDGET,
    prunings: tuple[str, ...] = PRUNINGS,
    recipes: tuple[tuple[str, ...], ...] = RECIPES,
    can_distil: bool = True,
    attempts: int = 3,
    progress: Callable[[str], None] = lambda _: None,
    bench: Bench | None = None,
) -> Compressed:
    """Try variants of a champion, choose one, and confirm the choice.

    Parameters
    ----------
    unseen
        Records on which the chosen one is judged in the fresh process; the best of many is flattered by the
        records that it was chosen on.
    budget
        Variants that are measured; those that the device cannot run cost nothing.
    attempts
        Variants that are put before the fresh process, the best first, until one keeps every bound there.
    bench
        Of the same task, where there is one already.
    """
    bench = bench or Bench(task, progress=progress)
    champion = bench.champion()
    cost = champion.cost
    assert cost is not None

    impossible: set[tuple[str, ...]] = set()

    def evaluate(variant: Variant) -> Evaluated:
        made = bench.evaluate(variant)
        if made.failure and variant.weights == SAME:
            impossible.add(variant.recipe)
        return made

    def beside(variant: Variant) -> list[Variant]:
        return neighbours(
            variant,
            prunings=prunings,
            recipes=tuple(each for each in recipes if each not in impossible),
            given=tuple(task.given),
            has_student=task.student is not None,
            can_distil=can_distil and task.traffic is not None and task.traffic.rows > 0,
        )

    found = best_first(CHAMPION, beside, evaluate, lambda made: made.score(cost, slo), budget=budget)
    refused: dict[str, list[str]] = {}

    def made(
        chosen: Evaluated | None, confirmed: Confirmed | None, source: Source | None, weights: bytes | None
    ) -> Compressed:
        whole = task.name, task.device, task.records.rows, slo, champion, found
        return Compressed(*whole, chosen, confirmed, refused, source, weights)

    left = list(found)
    while (chosen := best(left, cost, slo)) is not None and len(refused) < attempts:
        progress(f"{chosen.variant.name}: measured again in a fresh process")
        try:
            confirmed = bench.confirm(chosen.variant, unseen)
        except OutriderError as error:
            refused[chosen.variant.name] = [str(error)]
            left.remove(chosen)
            continue
        if not (missed := slo.missed(chosen.figures | confirmed.figures)):
            source, weights = bench.source(chosen.variant), bench.weights(chosen.variant)
            return made(chosen, confirmed, source, weights)
        refused[chosen.variant.name] = missed
        left.remove(chosen)
    return made(None, None, None, None)
