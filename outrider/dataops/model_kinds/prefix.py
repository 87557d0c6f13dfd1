"""Prefix-tuned variants in one batch, each row with its prefix."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from outrider.errors import ConfigError

from .adapter import Adapter
from .adapter_mixing import Mixing

CACHE = "past_key_values"


class Prefixes:
    """Each row's prefix before the text, in every attention layer.

    The prefix is a cache of keys and values; shorter prefixes and rows of the base are masked, and positions
    count from the end of each row's prefix. Li and Liang, "Prefix-Tuning", ACL 2021; as PEFT runs it.
    """

    def __init__(self, module: torch.nn.Module, adapters: Sequence[Adapter], mixing: Mixing) -> None:
        self._mixing = mixing
        self.has_run = False
        known = next(module.parameters())
        given = [a.prefix for a in adapters]
        self._own = [None if p is None else p.to(known.device, known.dtype) for p in given]
        self._check(module, adapters)
        _taking(module).register_forward_pre_hook(self._before, with_kwargs=True)

    def _check(self, module: torch.nn.Module, adapters: Sequence[Adapter]) -> None:
        config: Any = getattr(module, "config", None)
        layers = getattr(config, "num_hidden_layers", None)
        for adapter in adapters:
            if adapter.prefix is not None and layers is not None and adapter.prefix.shape[1] != 2 * layers:
                raise ConfigError(
                    f"adapter {adapter.name}: a prefix for {layers} layers expected, got one for "
                    f"{adapter.prefix.shape[1] // 2}"
                )

    def _before(
        self, module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        self.has_run = True
        names = list(inspect.signature(module.forward).parameters)
        named = dict(zip(names, positional, strict=False)) | named
        fed = named["input_ids"] if named.get("input_ids") is not None else named["inputs_embeds"]
        if len(fed) != self._mixing.rows:
            raise RuntimeError(
                f"{len(fed)} rows for {self._mixing.rows} records; prefixes are mixed by record"
            )
        lengths = self._lengths()
        most = max(lengths)
        if not most:
            return (), named
        cache: Any = named.get(CACHE)
        is_first = cache is None or cache.get_seq_length() == 0
        before = 0 if is_first else cache.get_seq_length() - most
        if is_first:
            named[CACHE] = self._filled(cache, most)
        self._mask(named, fed, lengths, before)
        self._place(names, named, fed, lengths, before)
        return (), named

    def _lengths(self) -> list[int]:
        lengths: list[int] = []
        for cut in self._mixing.cuts(self._mixing.rows):
            own = None if cut.variant is None else self._own[cut.variant]
            lengths += [0 if own is None else len(own)] * (cut.stop - cut.start)
        return lengths

    def _filled(self, cache: Any, most: int) -> Any:
        """Cache with the prefixes, right-aligned."""
        from transformers import DynamicCache

        rows = self._mixing.rows
        shape = next(own.shape for own in self._own if own is not None)
        like = next(own for own in self._own if own is not None)
        # (2 * layers, rows, heads, tokens, width), so that what a layer takes is in one piece
        held = like.new_zeros(shape[1], rows, shape[2], most, shape[3])
        for cut in self._mixing.cuts(rows):
            own = None if cut.variant is None else self._own[cut.variant]
            if own is not None:
                held[:, cut.start : cut.stop, :, most - len(own) :] = own.permute(1, 2, 0, 3)[:, None]
        cache = DynamicCache() if cache is None else cache
        for layer in range(shape[1] // 2):
            cache.update(held[2 * layer], held[2 * layer + 1], layer)
        return cache

    def _mask(self, named: dict[str, Any], fed: torch.Tensor, lengths: list[int], before: int) -> None:
        most, mask = max(lengths), named.get("attention_mask")
        if mask is None:
            if min(lengths) == most:
                return
            mask = torch.ones(len(fed), before + fed.shape[1], dtype=torch.long, device=fed.device)
        own = torch.tensor(lengths, device=mask.device)[:, None]  # (rows, 1)
        seen = torch.arange(most, device=mask.device) >= most - own  # (rows, most)
        named["attention_mask"] = torch.cat([seen.to(mask.dtype), mask], 1)

    def _place(
        self, names: list[str], named: dict[str, Any], fed: torch.Tensor, lengths: list[int], before: int
    ) -> None:
        """Positions of the text after each row's prefix."""
        if "position_ids" not in names:
            if min(lengths) != max(lengths):
                raise RuntimeError("prefixes differ in length, and the model takes no position_ids")
            return
        given = named.get("position_ids")
        if given is None:
            given = torch.arange(before, before + fed.shape[1], device=fed.device)[None]
        named["position_ids"] = given + torch.tensor(lengths, device=fed.device)[:, None]


def _taking(module: torch.nn.Module) -> torch.nn.Module:
    """The model, or the trunk below its head, that takes a cache."""
    for found in (module, getattr(module, "base_model", None)):
        if found is not None and CACHE in inspect.signature(found.forward).parameters:
            return found
    raise ConfigError(f"{type(module).__name__} takes no {CACHE}; prefix tuning needs that")
