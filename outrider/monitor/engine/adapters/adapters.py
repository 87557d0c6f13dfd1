"""Groups of adapters, run mixed on one base in memory."""

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from outrider.dataops.model_kinds.adapted import AdaptedRunner, base_of
from outrider.dataops.model_kinds.content import ADAPTER, FOLDER
from outrider.dataops.model_kinds.loading import is_runner
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import Executor, LoadedVersion

from .mixed import mixed

Known = Callable[[Sequence[Name]], Executor | None]


def mixtures_of(
    loaded: Mapping[Name, LoadedVersion],
    known: Known = lambda _names: None,
    *,
    taken: Collection[Name] = (),
) -> list[Executor]:
    """Executors of adapters with bit-equal bases, whose tensors are held once.

    ``known`` gives the executor of exactly these versions; ``taken`` may be the base and are not run
    here.
    """
    found: list[Executor] = []
    for group in _groups(loaded):
        wanted = {name: runner for name, runner in group.items() if name not in taken}
        names = sorted(wanted, key=lambda name: not isinstance(wanted[name], AdaptedRunner))
        if len(names) > 1 and isinstance(wanted[names[0]], AdaptedRunner):
            found.append(known(names) or mixed({name: wanted[name] for name in names}))
    return found


def base_in_memory(
    source: Source, weights: Path | bytes | None, loaded: Iterable[LoadedVersion]
) -> Runner | None:
    """Base of an adapter that is already loaded from the same file, or from a folder of the same digest."""
    if source.adapter is None:
        return None
    known = isinstance(weights, Path) if source.kind == "torch" else FOLDER in source.options
    wanted = _without_adapter(source)
    for one in loaded:
        if (
            known
            and is_runner(one.model)
            and one.weights == weights
            and _without_adapter(one.source) == wanted
        ):
            return base_of(one.model)
    return None


def _without_adapter(source: Source) -> Source:
    options = {name: value for name, value in source.options.items() if name != ADAPTER}
    return replace(source, adapter=None, adapted_from=None, shares=(), options=options)


def _groups(loaded: Mapping[Name, LoadedVersion]) -> list[dict[Name, Runner]]:
    """Versions whose bases are equal, prefixes apart from low rank, with which the base is."""
    runners = {name: one.model for name, one in loaded.items() if is_runner(one.model)}
    bases: dict[Hashable, list[dict[Name, Runner]]] = {}
    for name, runner in runners.items():
        alike = bases.setdefault(_form(loaded[name], runner), [])
        group = next((g for g in alike if _share(runner, list(g.values()))), None)
        if group is None:
            alike.append({name: runner})
        else:
            group[name] = runner
    return [apart for groups in bases.values() for group in groups for apart in _by_kind(group)]


def _form(one: LoadedVersion, runner: Runner) -> Hashable:
    source = one.source
    # Digests of folders are left out: what they hold is compared itself.
    options = json.dumps(
        {name: value for name, value in source.options.items() if name not in (FOLDER, ADAPTER)},
        sort_keys=True,
        default=str,
    )
    return (source.kind, source.task, options, source.recipe, runner.device, type(runner.module))


def _by_kind(group: Mapping[Name, Runner]) -> list[dict[Name, Runner]]:
    kinds: dict[str, dict[Name, Runner]] = {"low": {}, "prefixed": {}, "base": {}}
    for name, runner in group.items():
        adapter = runner.adapter if isinstance(runner, AdaptedRunner) else None
        kind = "base" if adapter is None else "low" if adapter.prefix is None else "prefixed"
        kinds[kind][name] = runner
    low, prefixed, base = kinds.values()
    return [low | base, prefixed] if low else [prefixed | base]


def _share(runner: Runner, others: Sequence[Runner]) -> bool:
    """True where a base equals the others'; it then takes their tensors.

    A head that the adapter replaces is not compared.
    """
    own = _tensors(base_of(runner).module)
    mine = _replaced(runner)
    pairs: dict[str, torch.Tensor] = {}
    for other in others:
        theirs, skipped = _tensors(base_of(other).module), mine | _replaced(other)
        if own.keys() != theirs.keys():
            return False
        for name in own.keys() - skipped - pairs.keys():
            if not _is_same(own[name], theirs[name]):
                return False
            pairs[name] = theirs[name]
    _replace(base_of(runner).module, pairs)
    return True


def _replaced(runner: Runner) -> set[str]:
    return set(runner.adapter.replaced) if isinstance(runner, AdaptedRunner) else set()


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; tied ones under each name."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    if type(one.data) is not torch.Tensor or type(other.data) is not torch.Tensor:
        return False  # quantised: what lies behind it is not ours to compare
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


def _replace(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    for full, tensor in tensors.items():
        place, _, name = full.rpartition(".")
        owner = module.get_submodule(place)
        store = owner._parameters if name in owner._parameters else owner._buffers
        store[name] = tensor  # type: ignore[assignment]  # a parameter among parameters, a buffer among buffers
