"""Forecast of the records, requests and cost that a comparison needs."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from outrider.assertions.comparison.verdict import percent, records_needed, talk_measures

from .plan import ComparePlan, Until

NOISES, OF_TEXTS = (0.0, 0.05), (0.0, 0.01)
"""Assumed rates at which production contradicts itself; ``OF_TEXTS`` applies if whole texts have to agree."""
Prices = Mapping[str, tuple[float, float]]


def forecast(
    plan: ComparePlan, *, candidates: int, is_talk: bool, asks_production: bool
) -> list[dict[str, Any]]:
    """Records and requests needed to prove a candidate equal, one row per noise level; ``asks_production``
    False: production's recorded answers are used."""
    is_again = asks_production or plan.is_deterministic
    measures = len(talk_measures(plan.agree)) + 1 if is_talk else 1
    rows = []
    is_exact = is_talk and not plan.agree
    noises = OF_TEXTS if is_exact else NOISES
    for noise in noises[:1] if plan.is_deterministic else noises:
        share = plan.share_again(is_noisy=noise > 0.0) if is_again else 0.0
        records = _needed(plan.margin, noise, share, candidates, measures, is_exact)
        again = None if records is None else round(records * (1 + share))
        production = records if plan.is_deterministic else again
        rows.append(
            {
                "noise": noise,
                "records": records,
                "production": production if asks_production else 0,
                "candidate": again,
            }
        )
    return rows


def forecast_text(rows: Sequence[Mapping[str, Any]], until: Until) -> str:
    parts = [f"{_records(row)} if answers differ from themselves in {percent(row['noise'])}" for row in rows]
    text = f"An equal candidate is proven by {', by '.join(parts)}"
    if any(row["records"] is None or row["records"] > until.records for row in rows):
        text += f"; the end is at {until.records:,} records, and a larger --margin needs fewer"
    return text + "."


def costs(
    rows: Sequence[Mapping[str, Any]], sides: Sequence[Mapping[str, Any]]
) -> dict[str, list[float | None]]:
    """Cost by system, one value per forecast row; ``sides[0]`` is production, and systems without a
    price are omitted."""
    found = {}
    for at, side in enumerate(sides):
        questions = [row["candidate" if at else "production"] for row in rows]
        if "price_per_1000" in side:
            each = side["price_per_1000"] / 1000.0
            found[side["name"]] = [None if count is None else count * each for count in questions]
    return found


def costs_text(found: Mapping[str, Sequence[float | None]]) -> str:
    parts = [
        f"{name} {' or '.join('unknown' if one is None else f'{one:.3g}' for one in all_)}"
        for name, all_ in found.items()
    ]
    return f"That costs about: {'; '.join(parts)}." if parts else ""


def _records(row: Mapping[str, Any]) -> str:
    if row["records"] is None:
        return "no number of records"
    to_production = f"{row['production']:,} questions to production, " if row["production"] else ""
    return f"about {row['records']:,} records ({to_production}{row['candidate']:,} to each candidate)"


@cache
def _needed(
    margin: float, noise: float, share: float, candidates: int, measures: int, is_exact: bool
) -> int | None:
    return records_needed(margin, noise, share, candidates=candidates, measures=measures, is_exact=is_exact)
