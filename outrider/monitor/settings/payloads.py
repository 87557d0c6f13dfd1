"""Payload readers with the limits of a model's settings."""

from outrider.dataops.payloads.columns import forms_of
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.payloads.payloads import Payloads, rows_at_once
from outrider.dataops.payloads.roots import PayloadRules, parse_roots
from outrider.dataops.payloads.store import PayloadCache, PayloadStore

from .config import Settings


def payload_rules(settings: Settings, model: str) -> PayloadRules:
    own = settings.models[model].intake
    roots = parse_roots(own.payload_roots, settings.base.absolute(), timeout_s=own.fetch_s)
    return PayloadRules(own.payload_bytes, roots)


def open_payloads(settings: Settings, model: str, *, may_fetch: bool = True) -> Payloads:
    """Decoder of a model's payloads; with ``may_fetch=False`` (intake and its pages) of local bytes only."""
    own = settings.models[model].intake
    rules = payload_rules(settings, model)
    folder = settings.data_folder
    store = PayloadStore(
        rules.roots if may_fetch else (),
        objects=LocalObjects(folder / "objects"),
        cache=PayloadCache(folder / "payloads"),
        max_bytes=own.payload_bytes,
    )
    forms = forms_of(settings.models[model].columns)
    return Payloads(
        forms,
        store,
        rows_at_once=rows_at_once(forms, payload_bytes=own.payload_bytes, may_fetch=bool(rules.roots)),
        deadline_s=own.fetch_s,
        max_pixels=own.payload_pixels,
    )


def near_payloads(settings: Settings) -> PayloadStore:
    """Store of locally cached payloads of any model; it never fetches."""
    folder = settings.data_folder
    return PayloadStore(
        objects=LocalObjects(folder / "objects"), cache=PayloadCache(folder / "payloads"), max_bytes=0
    )
