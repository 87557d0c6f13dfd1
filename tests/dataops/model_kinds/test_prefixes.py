"""Prefixes mixed in one batch answer as PEFT answers with each alone."""

from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.dataops.model_kinds.adapter import read_adapter
from outrider.dataops.model_kinds.adapter_mixing import VariantSpan
from outrider.dataops.model_kinds.mixture import Mixture
from outrider.errors import ConfigError
from tests.dataops.model_kinds.adapters import peft, save_adapter, with_adapter
from tests.dataops.model_kinds.test_adapters import WORDS, bert, check, gpt2, llama, tokens

TEXTS = 11


def prefixes(base: torch.nn.Module, task: str, folder: Path, lengths: tuple[int, ...]) -> list[Path]:
    configs = [peft().PrefixTuningConfig(task_type=task, num_virtual_tokens=most) for most in lengths]
    return [save_adapter(base, c, folder / str(n), seed=n) for n, c in enumerate(configs)]


@pytest.mark.parametrize("build", [bert, gpt2])
@pytest.mark.parametrize("lengths", [(6, 6, 6), (3, 8, 1)])
def test_classifiers_with_prefixes_and_heads_of_their_own(
    tmp_path: Path, build: Any, lengths: tuple[int, ...]
) -> None:
    base = build()
    check(base, prefixes(base, "SEQ_CLS", tmp_path, lengths), tokens(TEXTS))


def test_logits_of_a_causal_model_whose_keys_are_shared_by_heads(tmp_path: Path) -> None:
    base = llama()
    check(base, prefixes(base, "CAUSAL_LM", tmp_path, (4, 2, 5)), tokens(TEXTS, ragged=False))


def test_a_mask_is_not_needed(tmp_path: Path) -> None:
    base = gpt2()
    fed = tokens(TEXTS, ragged=False)
    check(base, prefixes(base, "SEQ_CLS", tmp_path, (4, 2, 5)), {"input_ids": fed["input_ids"]})


def test_what_is_generated_behind_prefixes(tmp_path: Path) -> None:
    base: Any = llama()
    folders = prefixes(base, "CAUSAL_LM", tmp_path, (4, 7))
    mixture = Mixture(base, [read_adapter(folder) for folder in folders])
    fed = tokens(6, ragged=False)
    how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    cuts = [VariantSpan(0, 0, 2), VariantSpan(1, 2, 5), VariantSpan(None, 5, 6)]
    mixture.begin(6, cuts)
    module: Any = mixture.module
    with torch.inference_mode():
        mixed = module.generate(**fed, **how)
        for cut, folder in zip(cuts, [*folders, None], strict=True):
            part = {name: t[cut.start : cut.stop] for name, t in fed.items()}
            alone = with_adapter(base, folder).generate(**part, **how)
            assert torch.equal(mixed[cut.start : cut.stop], alone)


def test_a_model_that_takes_nothing_from_before_is_refused(tmp_path: Path) -> None:
    base = gpt2()
    [folder] = prefixes(base, "SEQ_CLS", tmp_path, (4,))
    with pytest.raises(ConfigError, match="Linear takes no past_key_values"):
        Mixture(torch.nn.Linear(2, 2), [_without_head(folder)])
    from transformers import GPT2Config, GPT2ForSequenceClassification

    deeper = GPT2ForSequenceClassification(GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=3, n_head=2))
    with pytest.raises(ConfigError, match="a prefix for 3 layers expected, got one for 2"):
        Mixture(deeper, [_without_head(folder)])


def _without_head(folder: Path) -> Any:
    import dataclasses

    return dataclasses.replace(read_adapter(folder), replaced={})
