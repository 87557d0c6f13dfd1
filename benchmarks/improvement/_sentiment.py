"""A small BERT that SST-2 taught, and airline tweets that it meets: texts, labels, base."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.data import data_folder

CLASSES = ("negative", "positive")
PHRASES, EPOCHS, RATE = 40_000, 2, 6e-4
WORDS, TOKENS = 6_000, 64
SHAPE: dict[str, Any] = {
    "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512,
    "max_position_embeddings": TOKENS, "pad_token_id": 0, "num_labels": 2,
    "id2label": dict(enumerate(CLASSES)), "label2id": {name: at for at, name in enumerate(CLASSES)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts with their classes, as numbers."""

    text: NDArray[Any]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.text)

    def take(self, rows: NDArray[Any]) -> "Texts":
        """Texts by place."""
        return Texts(self.text[rows], self.y[rows])


def sst2(part: str) -> Texts:
    """Phrases (train, dev) or whole sentences (test) of movie reviews; phrases shuffled, each once."""
    frame = pd.read_parquet(data_folder("sst2") / f"{part}.parquet").drop_duplicates("text")
    frame = frame.sample(frac=1.0, random_state=0) if part != "test" else frame
    return Texts(frame.text.to_numpy(dtype=object), frame.label.to_numpy(dtype=np.int64))


def tweets() -> Texts:
    """Positive and negative tweets in order of time, handles and addresses taken away."""
    frame = pd.read_parquet(data_folder("airline_tweets") / "tweets.parquet")
    frame = frame[frame.label != "neutral"].sort_values("created", kind="stable")
    text = frame.text.str.replace(r"@\w+|https?://\S+", " ", regex=True).str.strip()
    y = np.asarray(frame.label == "positive", dtype=np.int64)
    return Texts(text.to_numpy(dtype=object), y)


def write_base(
    folder: Path,
    *,
    phrases: int = PHRASES,
    epochs: int = EPOCHS,
    rate: float = RATE,
    seed: int = 0,
    **shape: int,
) -> None:
    """Train a BERT on phrases of SST-2, with word pieces of theirs, and save it."""
    from transformers import BertConfig, BertForSequenceClassification

    known = sst2("train").take(np.arange(phrases))
    tokenizer = write_tokenizer(known.text.tolist())
    torch.manual_seed(seed)
    module: Any = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **(SHAPE | shape)))
    ids = tokenizer(known.text.tolist(), truncation=True)["input_ids"]
    order = np.argsort([len(each) for each in ids], kind="stable")
    batches = [order[start : start + 64] for start in range(0, len(order), 64)]
    draw = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * len(batches))
    module.train()
    for _ in range(epochs):
        for at in draw.permutation(len(batches)):
            rows = batches[at]
            fed = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            loss = module(**fed, labels=torch.from_numpy(known.y[rows])).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    module.eval()
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_tokenizer(texts: list[str]) -> Any:
    """Word pieces of texts, in lower case."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    inner.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=WORDS, special_tokens=special, show_progress=False)
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # it has no annotations
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=TOKENS, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
