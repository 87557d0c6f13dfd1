"""Small Hugging Face folders: a word-level tokenizer and a model of one or two layers, made on the spot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.forked import LIGHT
from tests.requirements import require_package

NEEDS = ("torch", "transformers.models.auto", "transformers.models.bert.modeling_bert")
"""What a process imports for such a folder."""
OPENING = (*LIGHT, "outrider.dataops.uploads.check_process", "onnxruntime", *NEEDS)
"""What processes import that open uploads: one nursery for all files of tests that send some."""
WORDS = (
    "a the film plot is was and not very good great fine bad dull awful "
    "ada bob paris rome lives in works for acme"
)
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def transformers() -> Any:
    """The package, or a skip."""
    return require_package("transformers", "pip install outrider[hf]")


def write_tokenizer(folder: Path, *, pieces: Sequence[str] = (), specials: bool = True) -> Any:
    """A word-piece tokenizer of the words above and of ``pieces``, as fast tokenizers are saved."""
    hf = transformers()
    tokenizers = require_package("tokenizers", "pip install outrider[hf]")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS.split(), *pieces]
    vocabulary = {word: number for number, word in enumerate(names)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    if specials:
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    made = hf.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        eos_token="[SEP]", model_max_length=32,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    made.save_pretrained(folder)
    return made


def bert_config(vocabulary: int, **more: Any) -> Any:
    """Configuration of a BERT of two layers."""
    return transformers().BertConfig(vocab_size=vocabulary, max_position_embeddings=32, **LAYERS, **more)


def gpt2_config(vocabulary: int) -> Any:
    """Configuration of a GPT-2 of two layers."""
    return transformers().GPT2Config(
        vocab_size=vocabulary, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=2, eos_token_id=3
    )


def save(folder: Path, head: str, config: Any, *, seed: int = 0) -> Any:
    """An untrained model, saved as safetensors."""
    torch.manual_seed(seed)
    model = getattr(transformers(), head)(config).eval()
    model.save_pretrained(folder)
    return model
