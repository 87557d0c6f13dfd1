"""Adapters mixed in one batch answer as PEFT answers with each alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.dataops.model_kinds.adapter import read_adapter
from outrider.dataops.model_kinds.adapter_mixing import VariantSpan
from outrider.dataops.model_kinds.mixture import Mixture
from tests.dataops.model_kinds.adapters import answer, peft, save_adapter
from tests.dataops.model_kinds.folders import bert_config, gpt2_config, transformers

CLOSE = 1e-5
ROWS = (5, 1, 3, 2)  # of the variants, and of the base behind them
WORDS = 40


def tokens(rows: int, *, width: int = 9, ragged: bool = True) -> dict[str, torch.Tensor]:
    ids = torch.randint(4, WORDS, (rows, width), generator=torch.Generator().manual_seed(7))
    lengths = torch.arange(rows) % width + 1 if ragged else torch.full((rows,), width)
    mask = (torch.arange(width) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def bert(**more: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    module: torch.nn.Module = transformers().BertForSequenceClassification(bert_config(WORDS, **more)).eval()
    return module


def gpt2() -> torch.nn.Module:
    torch.manual_seed(0)
    config = gpt2_config(WORDS)
    config.pad_token_id = 0
    module: torch.nn.Module = transformers().GPT2ForSequenceClassification(config).eval()
    return module


def llama() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers().LlamaConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    module: torch.nn.Module = transformers().LlamaForCausalLM(config).eval()
    return module


def check(base: torch.nn.Module, folders: Sequence[Path], fed: dict[str, torch.Tensor], **how: Any) -> None:
    """One pass over rows of every adapter and of the base, beside PEFT's answers one by one."""
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    mixture = Mixture(base, [read_adapter(folder) for folder in folders], **how)
    shares = ROWS[: len(folders)] + ROWS[-1:]
    cuts, at = [], 0
    for variant, rows in zip([*range(len(folders)), None], shares, strict=True):
        cuts.append(VariantSpan(variant, at, at + rows))
        at += rows
    mixture.begin(at, cuts)
    with torch.inference_mode():
        out = mixture.module(**fed)
    mixed = getattr(out, "logits", out)
    assert not mixture.idle()
    for cut in cuts:
        folder = None if cut.variant is None else folders[cut.variant]
        alone = answer(base, folder, {name: t[cut.start : cut.stop] for name, t in fed.items()})
        width = alone.shape[-1]
        torch.testing.assert_close(mixed[cut.start : cut.stop, ..., :width], alone, rtol=CLOSE, atol=CLOSE)
        assert folder is None or not torch.allclose(alone, answer_of_base(base, fed, cut), atol=1e-2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.state_dict().items())


def answer_of_base(base: torch.nn.Module, fed: dict[str, torch.Tensor], cut: VariantSpan) -> torch.Tensor:
    return answer(base, None, {name: t[cut.start : cut.stop] for name, t in fed.items()})


def test_lora_of_all_linear_layers_with_heads_of_their_own(tmp_path: Path) -> None:
    base = bert(num_labels=3)
    configs = [
        peft().LoraConfig(task_type="SEQ_CLS", target_modules="all-linear", r=4, lora_alpha=12),
        peft().LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], r=8, use_rslora=True),
        peft().LoraConfig(
            task_type="SEQ_CLS", target_modules="all-linear", r=2, bias="lora_only",
            rank_pattern={"query": 6}, alpha_pattern={"layer.1.intermediate.dense": 5},
        ),
    ]  # fmt: skip
    folders = [save_adapter(base, c, tmp_path / str(n), seed=n) for n, c in enumerate(configs)]
    check(base, folders, tokens(sum(ROWS)))


def test_long_runs_which_are_merged_answer_alike(tmp_path: Path) -> None:
    base = bert()
    config = peft().LoraConfig(task_type="SEQ_CLS", target_modules="all-linear", r=4)
    folders = [save_adapter(base, config, tmp_path / str(n), seed=n) for n in range(3)]
    check(base, folders, tokens(sum(ROWS), width=30, ragged=False))  # 150, 30 and 90 positions; 16 are enough


def test_lora_of_gpt2_whose_weights_lie_the_other_way_round(tmp_path: Path) -> None:
    config = peft().LoraConfig(
        task_type="SEQ_CLS", target_modules=["c_attn", "c_proj"], r=4, fan_in_fan_out=True
    )
    base = gpt2()
    folders = [save_adapter(base, config, tmp_path / str(n), seed=n) for n in range(3)]
    check(base, folders, tokens(sum(ROWS)))


def test_lora_of_embeddings_and_of_a_causal_model(tmp_path: Path) -> None:
    base = llama()
    config = peft().LoraConfig(
        task_type="CAUSAL_LM", target_modules=["embed_tokens", "q_proj", "down_proj"], r=4,
        modules_to_save=["norm"],
    )  # fmt: skip
    folders = [save_adapter(base, config, tmp_path / str(n), seed=n) for n in range(2)]
    check(base, folders, tokens(ROWS[0] + ROWS[1] + ROWS[-1]))


class Picture(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.inner = torch.nn.Linear(4 * 16, 12, bias=False)
        self.head = torch.nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.seen(x))
        out: torch.Tensor = self.head(torch.relu(self.inner(h.flatten(1))))
        return out


def test_lora_of_a_torch_module_with_a_convolution(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = Picture().eval()
    config = peft().LoraConfig(target_modules=["seen", "inner"], modules_to_save=["head"], r=2)
    folders = [save_adapter(base, config, tmp_path / str(n), seed=n) for n in range(3)]
    check(base, folders, {"x": torch.randn(sum(ROWS), 1, 8, 8)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_stacked_products_answer_as_runs_do(tmp_path: Path, dtype: torch.dtype) -> None:
    """What a GPU runs: all rows at once, and whose they are is data."""
    base = bert().to(dtype)
    configs = [peft().LoraConfig(task_type="SEQ_CLS", target_modules="all-linear", r=r) for r in (2, 4, 11)]
    folders = [save_adapter(base, c, tmp_path / str(n), seed=n) for n, c in enumerate(configs)]
    adapters = [read_adapter(folder) for folder in folders]
    fed, cuts = (
        tokens(9),
        [VariantSpan(0, 0, 4), VariantSpan(2, 4, 7), VariantSpan(None, 7, 9)],
    )  # nothing for the second
    stacked = Mixture(base, adapters, is_stacked=True)
    assert stacked.is_indexable
    with torch.inference_mode():
        one_by_one = Mixture(base, adapters)
        one_by_one.begin(9, cuts)
        expected = one_by_one.module(**fed).logits
        stacked.begin(9, cuts)
        by_cuts = stacked.module(**fed).logits
        of_rows = torch.tensor([0] * 4 + [2] * 3 + [3] * 2)
        stacked.mixing.begin_indexed(of_rows, torch.tensor([4, 4, 7, 9], dtype=torch.int32))
        by_index = stacked.module(**fed).logits
    close = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(by_cuts, expected, rtol=close, atol=close)
    assert torch.equal(by_cuts, by_index)
