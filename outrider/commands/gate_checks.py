"""Checks of a gate policy: unknown names, and evidence that cannot exist."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from outrider.errors import nearest

from .model_checks import callable_problems

if TYPE_CHECKING:
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.gate_sections import GateSettings
    from outrider.monitor.settings.model_sections import ModelSettings


def gate_problems(
    settings: "Settings",
    model: "ModelSettings",
    assertions: Sequence[Mapping[str, Any]],
    tests: Iterable[tuple[str, ...]],
) -> Iterator[str]:
    """Problems of a model's gate policy. ``tests`` are pairs of suite and test name."""
    from outrider.monitor.settings.gate_sections import FrozenPolicy

    policy = model.gate
    if isinstance(policy, FrozenPolicy) and policy.fault:
        yield from (f"gate.policy: {line}" for line in policy.fault.splitlines())
        return
    if policy.loss.endswith(".py") or ":" in policy.loss:
        yield from callable_problems(settings, "gate.loss", policy.loss)
    if policy.loss in ("log", "average_precision") and not model.classes:
        yield f"gate.loss: {policy.loss} needs the classes of the model's probabilities; declare classes"
    yield from _unknown(policy, assertions, list(tests))
    yield from _never_there(model)


def _unknown(
    policy: "GateSettings", assertions: Sequence[Mapping[str, Any]], tests: Sequence[tuple[str, ...]]
) -> Iterator[str]:
    """Suites, tests and assertions of the policy that the model does not have."""
    for key, named, at in (("suites", policy.suites, 0), ("tests", policy.tests, 1)):
        known = {test[at] for test in tests}
        for name in named:
            if name not in known:
                yield f"gate.{key}: behavior has no {key[:-1]} {name!r}{nearest(name, known)}"
    needs = {each["name"]: each["needs"] for each in assertions}
    for limit in policy.flags:
        if limit.assertion not in needs:
            near = nearest(limit.assertion, needs)
            yield f"gate.flags: no assertion {limit.assertion!r} judges records{near}"
        elif any(need.startswith("judge.") for need in needs[limit.assertion]):
            yield f"gate.flags: {limit.assertion} rests on a judge, which is asked about the champion alone"


def _never_there(model: "ModelSettings") -> Iterator[str]:
    """Required evidence that can never exist, so that no candidate is promoted."""
    policy = model.gate
    has_fresh = policy.rolling is None and (not model.retrain.enabled or model.retrain.held_out_share > 0)
    can = {
        "labels": bool(policy.judging) or has_fresh or policy.rolling is not None,
        "suites": bool(model.behavior),
        "shadow": policy.shadow_rows > 0,
    }
    ways = {
        "labels": "gate.held_out or retrain.held_out_share",
        "suites": "behavior",
        "shadow": "gate.shadow_rows",
    }
    for part in policy.requires:
        if not can[part]:
            yield f"gate.requires: {part!r} can never be there, so nothing is promoted; set {ways[part]}"
    if policy.latency.max_ratio is not None and not policy.judging and not has_fresh:
        yield "gate.latency.max_ratio: no labelled row to time on, so nothing is promoted; set held_out"
    if policy.rolling is not None and model.kind == "endpoint":
        yield "gate.rolling: versions of an endpoint are not asked again, so none wins; remove it"
    if any(policy.memory.model_dump().values()) and model.kind in ("function", "endpoint"):
        yield f"gate.memory: the size of a {model.kind} is unknown, so nothing is promoted; remove it"


def gate_warnings(model: "ModelSettings") -> Iterator[str]:
    """Parts of a gate policy without effect."""
    if model.gate.rolling is not None and model.gate.shadow_rows:
        yield (
            "gate.rolling: a version that does not answer beside the champion never has shadow_rows, so no "
            "earlier one is promoted; remove either"
        )
