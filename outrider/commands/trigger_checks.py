"""Checks of triggers: unknown names, and triggers without effect."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from outrider.errors import nearest

if TYPE_CHECKING:
    from outrider.monitor.settings.model_sections import ModelSettings


def trigger_problems(model: "ModelSettings", offered: Mapping[str, Any]) -> Iterator[str]:
    """Problems of a model's triggers. ``offered`` comes from the assertion host."""
    rules, where = model.retrain.triggers, "retrain.triggers"
    known = _names(offered["assertions"]) | _names(offered["live"])
    for rate in rules.flag_rates:
        if rate.assertion not in known:
            yield f"{where}.flag_rates: no assertion {rate.assertion!r}{nearest(rate.assertion, known)}"
    if rules.behavior and not model.behavior and not offered["suites"]:
        yield f"{where}.behavior: the model has no behavioral test; name their files in behavior"


def trigger_warnings(model: "ModelSettings") -> Iterator[str]:
    """Triggers without effect, because retraining is disabled."""
    if model.retrain.triggers.active and not model.retrain.enabled:
        yield "retrain.triggers: nothing fires, since retrain.enabled is false; set it"


def _names(entries: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(entry["name"]) for entry in entries}
