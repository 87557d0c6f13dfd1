"""Page of a model's drift."""

from dataclasses import dataclass

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import Response

from outrider.dataops.ledger.stored_profiles import newest_end, profiled_slices
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.queries.drift import DATASET, DEFAULT, DriftReader, DriftRequest, time_us
from outrider.monitor.queries.series.span import step_us

from .drift_page import charts_of
from .frame import PageFrame

SPANS = (("15m", "last 15 minutes"), ("1h", "last hour"), ("6h", "last 6 hours"), ("24h", "last day"))
REFERENCES = (
    ("1h", "hour before"),
    ("24h", "24 hours before"),
    ("7d", "7 days before"),
    (DATASET, "training data"),
)


@dataclass(frozen=True, slots=True)
class ModelDriftPage:
    """Small multiples of the columns, worst first."""

    _engine: Engine
    _reader: DriftReader
    _frame: PageFrame

    def show(
        self,
        request: Request,
        model: str,
        last: str = "1h",
        reference: str = DEFAULT,
        slice: str = "",
        since: str = "",
        until: str = "",
    ) -> Response:
        """Drift of the last records, or of a span, from a reference."""
        with self._engine.connect() as connection:
            end, slices = newest_end(connection, model), profiled_slices(connection, model)
        found, told = None, "" if end is not None else "No profile is stored yet."
        try:
            if end is not None:
                begin = max(0, end - step_us(last))
                if since and until:
                    begin, end = time_us(since), time_us(until)
                wanted = DriftRequest(model, begin, end, reference, slice=slice or None)
                found = self._reader.read(wanted)
        except (ProblemError, ValueError) as error:
            told = str(error)
        context = {
            "r": found,
            "charts": {} if found is None else charts_of(found),
            "spans": list(({last: last} | dict(SPANS)).items()),
            "references": list(({reference: reference} | dict(REFERENCES)).items()),
            "last": last,
            "reference": reference,
            "slices": slices,
            "slice": slice,
            "problem": told,
        }
        return self._frame.page(request, "model_drift.html", model, "/drift", context)


def model_drift_pages(engine: Engine, reader: DriftReader, frame: PageFrame) -> APIRouter:
    """Route of the page."""
    router = APIRouter()
    router.add_api_route("/m/{model}/drift", ModelDriftPage(engine, reader, frame).show, methods=["GET"])
    return router
