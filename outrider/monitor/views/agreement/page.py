"""Page of challengers: agreement, score distances, examples, cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response

from outrider.dataops.improvement import shadow_tests
from outrider.dataops.models import registry as models
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.routes import page
from outrider.monitor.views.service import Service
from outrider.monitor.web.bounds_chart import HEIGHT, WIDTH, BoundsChart, bounds_chart

from .reader import trial_json

FLOORS = (0.99, 0.95, 0.9, 0.75, 0.5, 0.0)
"""Where the axis of agreement begins: the highest that leaves every interval on it."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Two rectangles of a distance class, heights as shares."""

    x: float
    width: float
    challenger: float
    noise: float
    label: str
    told: str


@dataclass(frozen=True, slots=True)
class TrialView:
    """Shadow test with the data of its charts."""

    test: Mapping[str, Any]
    """As ``GET /v1/agreement`` has it."""
    floor: float
    """Left end of the axis of agreement."""
    bars: tuple[Bar, ...]
    chart: BoundsChart | None

    def at(self, share: float) -> float:
        """Place of a share on the axis, in [0, 100]."""
        return round(100 * max(0.0, share - self.floor) / (1.0 - self.floor), 2)


@dataclass(frozen=True, slots=True)
class AgreementPage:
    """Everything the page shows."""

    champion: str | None
    trials: tuple[TrialView, ...]
    is_one: bool
    """True for one version's page, which shows its rows at once."""


def read_agreement(engine: Engine, model: str, *, version: str = "") -> AgreementPage:
    """Read the newest test of every challenger, or of one."""
    with engine.connect() as connection:
        found = shadow_tests.newest(connection, model, version or None)
        champion = models.champion(connection, model)
    return AgreementPage(
        None if champion is None else champion.version,
        tuple(view_of(trial_json(trial)) for trial in found),
        is_one=bool(version),
    )


def view_of(test: Mapping[str, Any]) -> TrialView:
    """Data of a test's charts."""
    lows = [row[part]["low"] for row in test["agreement"] for part in ("raw", "beyond")]
    floor = next(each for each in FLOORS if each <= min(lows, default=1.0))
    required = test["required"]
    chart = None if required is None else bounds_chart(test["history"], 1.0 - required)
    return TrialView(test, floor, tuple(_bars(test["score_distances"])), chart)


def _bars(distances: Mapping[str, Any]) -> Sequence[Bar]:
    """Classes from the first to the last that has a record, each with both shares."""
    edges, one, other = (list(distances[name]) for name in ("edges", "challenger", "noise"))
    both = [sum(one), sum(other)]
    if not both[0]:
        return []
    used = [at for at, counts in enumerate(zip(one, other, strict=True)) if any(counts)]
    first, last = used[0], used[-1]
    shares = [(one[at] / both[0], other[at] / both[1] if both[1] else 0.0) for at in range(first, last + 1)]
    top = max(max(pair) for pair in shares)
    width = WIDTH / len(shares)
    return [
        Bar(
            x=round((at - first) * width, 2),
            width=round(width, 2),
            challenger=round(HEIGHT * mine / top, 2),
            noise=round(HEIGHT * floor / top, 2),
            label=_edge(edges, at),
            told=f"{_edge(edges, at)}: {mine:.2%} between both, {floor:.2%} of the champion from itself",
        )
        for at, (mine, floor) in zip(range(first, last + 1), shares, strict=True)
    ]


def _edge(edges: Sequence[float], at: int) -> str:
    if at == 0:
        return f"< {edges[0]:.0e}"
    return f"≥ {edges[at - 1]:.1g}"


@page("/m/{model}/agreement", scope="read")
def agreement_page(service: Service, request: Request, model: str, version: str = "") -> Response:
    """Challengers beside the champion."""
    found = read_agreement(service.engine, model, version=version)
    return service.frame.page(request, "agreement.html", model, "/agreement", {"a": found}, refresh=True)


@page("/models/{model}/agreement", scope="read")
def named_agreement_page(_service: Service, model: str) -> Response:
    """Redirect to the same page by its descriptive address."""
    address = f"/m/{quote(model, safe='')}/agreement"
    return RedirectResponse(address, status_code=303, headers=HEADERS)
