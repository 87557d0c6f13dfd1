"""The pages: HTTP in, a query, a template out."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response

from outrider.assertions.quality import Rate
from outrider.dataops.database import now_us

from .blocks import BlockReader, Blocks
from .improvement import list_datasets, list_jobs, list_quarantine, list_verdicts, read_lineage
from .overview import Overview, list_choices, list_models, read_overview
from .pictures import draw, draw_evidence, make_card, make_cards, record_link, record_pictures
from .queries import RecordView, list_flags, read_flag, read_record
from .rendering import HEADERS, Pages, flatten

PAGE_FLAGS = 60
NEIGHBOURS = 5
_PICTURE_HEADERS = {
    "cache-control": "private, max-age=86400, immutable",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'",
}


class WebPage:
    """Answers of the pages; one method per page."""

    def __init__(
        self,
        engine: Engine,
        journal: BlockReader,
        *,
        models: tuple[str, ...],
        health: Callable[[], Mapping[str, bool]],
    ) -> None:
        self._engine = engine
        self._blocks = Blocks(journal)
        self._configured = models
        self._health = health
        self._pages = Pages()

    def home(self) -> Response:
        """The first model's overview, or how to get one."""
        models = list_models(self._engine, self._configured)
        if models:
            return RedirectResponse(f"/m/{quote(models[0], safe='')}", status_code=307, headers=HEADERS)
        text = "No model is configured: add a [models.<name>] section to outrider.toml."
        return self._message("No model yet", text, status=200)

    def static(self, name: str) -> Response:
        """A file of the page's own."""
        return self._pages.static(name) or self._message("Not found", f"There is no file {name}.")

    def overview(self, request: Request, model: str) -> Response:
        """Rates, series, health."""
        view = read_overview(self._engine, model, now_us=now_us(), last_seq=self._blocks.last_work_seq())
        champion = next((version for version in view.versions if version.status == "champion"), None)
        challengers = [version.version for version in view.versions if version.status == "challenger"]
        current, accuracy = _current_accuracy(view, champion.version if champion else None)
        context = {
            "o": view,
            "champion": champion,
            "challengers": challengers,
            "accuracy_all": accuracy,
            "accuracy_version": current,
            "accuracy_versions": list(view.accuracy.get("", {}))[-4:],
            "health": self._health(),
            "most": max([row.per_1000.get("champion", 0.0) for row in view.assertions], default=0.0) or 1.0,
        }
        return self._page(request, "overview.html", model, "", context, refresh=True)

    def flags(
        self,
        request: Request,
        model: str,
        assertion: str = "",
        slot: str = "",
        level: str = "",
        after: str = "",
    ) -> Response:
        """Flagged records, filtered and paged."""
        chosen = {"assertion": assertion, "slot": slot, "level": level}
        try:
            page = list_flags(
                self._engine,
                model,
                assertion=assertion or None,
                slot=slot or None,
                level=level or None,
                limit=PAGE_FLAGS,
                after=after or None,
            )
        except ValueError as error:
            return self._message("Bad address", str(error), status=400)
        address = f"/m/{quote(model, safe='')}/flags"
        kept = {name: value for name, value in chosen.items() if value}
        names, slots = list_choices(self._engine, model)
        context = {
            "cards": make_cards(page.flags, self._blocks.batch),
            "chosen": chosen,
            "choices": [
                ("assertion", "Assertion", names),
                ("slot", "Slot", slots),
                ("level", "Level", ["info", "warning", "critical"]),
            ],
            "any_filter": bool(kept),
            "exhausted": page.exhausted,
            "first_link": _address(address, kept) if after else None,
            "next_link": _address(address, kept | {"after": page.after}) if page.after else None,
        }
        return self._page(request, "flags.html", model, "/flags", context, refresh=not after)

    def record(self, request: Request, model: str, record_id: str) -> Response:
        """One record with all that is known of it."""
        view = read_record(self._engine, model, record_id)
        if view is None:
            return self._message("Not found", f"{model} has no record {record_id!r}.", model=model)
        payload = self._blocks.record(view.seq, view.row)
        batch = self._blocks.batch(view.seq)
        context = {
            "r": view,
            "payload": payload,
            "pictures": record_pictures(batch, model, record_id),
            "cards": [make_card((flag,), self._blocks.batch) for flag in view.flags],
            "neighbours": self._neighbours(view),
            "parts": [
                (title, list(flatten((payload or {}).get(part, {}))))
                for part, title in (
                    ("inputs", "Inputs"),
                    ("outputs", "Outputs"),
                    ("label", "Label sent with it"),
                    ("attrs", "Attributes"),
                )
            ],
        }
        return self._page(request, "record.html", model, "/records", context)

    def lineage(self, request: Request, model: str) -> Response:
        """What the champion was made from."""
        return self._page(
            request, "lineage.html", model, "/lineage", {"root": read_lineage(self._engine, model)}
        )

    def retrains(self, request: Request, model: str) -> Response:
        """Jobs and gate verdicts."""
        context = {
            "jobs": list_jobs(self._engine, model),
            "verdicts": list_verdicts(self._engine, model),
        }
        return self._page(request, "retrains.html", model, "/retrains", context, refresh=True)

    def datasets(self, request: Request, model: str) -> Response:
        """Dataset versions and refused rows."""
        context = {
            "datasets": list_datasets(self._engine, model),
            "refused": list_quarantine(self._engine, model),
        }
        return self._page(request, "datasets.html", model, "/datasets", context)

    def record_image(self, model: str, column: str, record_id: str) -> Response:
        """PNG of a tensor column of a record."""
        view = read_record(self._engine, model, record_id)
        batch = self._blocks.batch(view.seq) if view else None
        return self._png(draw(batch, view.row, column) if batch is not None and view else None)

    def flag_image(self, model: str, flag_id: str, name: str) -> Response:
        """PNG of a part of a flag's evidence."""
        flag = read_flag(self._engine, model, flag_id)
        return self._png(draw_evidence(flag.evidence, name) if flag else None)

    def _png(self, image: bytes | None) -> Response:
        if image is None:
            return Response(status_code=404, headers=HEADERS)
        return Response(image, media_type="image/png", headers=_PICTURE_HEADERS)

    def _neighbours(self, view: RecordView) -> list[tuple[str, str, str, bool]]:
        """Pictures around a record: of its entity when it has one, else of the stream."""
        batch = self._blocks.batch(view.seq)
        if batch is None:
            return []
        rows = list(range(batch.rows))
        if view.entity is not None:
            entities = batch.column("entity")
            rows = [row for row in rows if entities[row] == view.entity]
        before = [row for row in rows if row < view.row][-NEIGHBOURS:]
        shown = [*before, view.row, *[row for row in rows if row > view.row][:NEIGHBOURS]]
        outputs = batch.slice(min(shown), max(shown) - min(shown) + 1).to_records()
        pictures = []
        for row in shown if len(shown) > 1 else []:
            identity = str(batch.keys[row])
            said = outputs[row - min(shown)].get("outputs", {})
            caption = ", ".join(text for _, text in list(flatten(said))[:1]) or identity
            for source, _ in record_pictures(batch, view.model, identity)[:1]:
                pictures.append((source, caption, record_link(view.model, identity), row == view.row))
        return pictures

    def _page(
        self,
        request: Request,
        template: str,
        model: str,
        page: str,
        context: Mapping[str, Any],
        *,
        refresh: bool = False,
    ) -> Response:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        models = list_models(self._engine, self._configured)
        if model not in models:
            return self._message("Not found", f"There is no model {model!r}.")
        shared = {
            "model": model,
            "page": page,
            "models": models,
            "refresh": address if refresh else None,
        }
        return self._pages.render(template, {**shared, **context}, fragment="hx-request" in request.headers)

    def _message(self, heading: str, text: str, *, status: int = 404, model: str = "") -> Response:
        context = {
            "model": model,
            "page": None,
            "models": list_models(self._engine, self._configured),
            "refresh": None,
            "heading": heading,
            "text": text,
        }
        return self._pages.render("message.html", context, status=status)


def web_routes(
    engine: Engine,
    journal: BlockReader,
    *,
    models: tuple[str, ...],
    require_reader: Callable[..., Any] | None = None,
    health: Callable[[], Mapping[str, bool]] = dict,
) -> APIRouter:
    """Routes of the web page.

    Parameters
    ----------
    models
        Names from the configuration.
    require_reader
        FastAPI dependency that lets a reader pass; None where a gate stands in front of the application.
    health
        Process name to whether it reports, as ``ProcessesCollector.health``.
    """
    page = WebPage(engine, journal, models=models, health=health)
    guards = [] if require_reader is None else [Depends(require_reader)]
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/static/{name:path}", page.static)
    for path, answer in (
        ("/", page.home),
        ("/m/{model}", page.overview),
        ("/m/{model}/flags", page.flags),
        ("/m/{model}/lineage", page.lineage),
        ("/m/{model}/retrains", page.retrains),
        ("/m/{model}/datasets", page.datasets),
        ("/m/{model}/records/{record_id:path}", page.record),
        ("/m/{model}/images/records/{column}/{record_id:path}", page.record_image),
        ("/m/{model}/images/flags/{flag_id}/{name:path}", page.flag_image),
    ):
        router.add_api_route(path, answer, methods=["GET"], dependencies=guards)
    return router


def _current_accuracy(view: Overview, champion: str | None) -> tuple[str | None, Rate]:
    """Accuracy of the champion's version where it has labels, else of all versions together."""
    by_version = view.accuracy.get("", {})
    if champion is not None and champion in by_version:
        return champion, by_version[champion]
    return None, Rate(sum(r.hits for r in by_version.values()), sum(r.trials for r in by_version.values()))


def _address(path: str, query: Mapping[str, str | None]) -> str:
    pairs = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(pairs)}" if pairs else path
