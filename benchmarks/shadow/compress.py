"""Variants of a real transformer on a CPU: one is worth it and keeps its objective, a harmful one is refused.

``python -m benchmarks.shadow.compress`` trains a BERT of four layers on SST-2 phrases (words are its tokens),
compresses it as ``outrider compress`` does, on sentences and phrases it was not trained on, with two
assertions and four behavioral tests, and prints the table. The same ladder judges ``deaf``, the champion
with its words of negation taken away: it agrees on most of the traffic, and must be refused.
"""

import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch, assertion
from outrider.behavioral_tests import MFT, Suite
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.ladder import Compressed, CompressionTask, Ladder
from outrider.dataops.compression.report import markdown
from outrider.dataops.compression.slo import Slo
from outrider.dataops.compression.timing import Effort
from outrider.dataops.compression.variant import Variant
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights

PHRASES, RECORDS, TRAFFIC = 12_000, 1_000, 2_000
NEGATIONS = ("not", "n't", "never", "no", "nothing", "without", "hardly")
GOOD = (
    "good",
    "great",
    "funny",
    "moving",
    "brilliant",
    "charming",
    "enjoyable",
    "beautiful",
    "smart",
    "sweet",
)
BAD = ("bad", "dull", "boring", "awful", "terrible", "stupid", "tedious", "silly", "lame", "bland")


@assertion
def praised_by_no_word(batch: Batch) -> NDArray[np.bool_]:
    """Called positive, with a word of blame and none of praise."""
    words = [set(text.split()) for text in batch.column("inputs.text").tolist()]
    blamed = np.array([bool(each & set(BAD)) and not each & set(GOOD) for each in words])
    return np.asarray(blamed & (batch.column("outputs.label") == 1))


@assertion
def unsure(batch: Batch) -> NDArray[np.bool_]:
    """Hardly more sure than a coin."""
    return np.asarray(batch.column("outputs.score") < 0.55)


def main() -> None:
    """Train, compress, print table and figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        accuracy = train(folder)
        found, deaf = compressed(folder)
        for figure in figures(found, deaf, accuracy):
            figure.show()
        lines = markdown(found.to_dict()).splitlines()
        show_table("variants", "\n".join(line for line in lines if line.startswith("|")))


def figures(found: Compressed, deaf: Variant, accuracy: float) -> list[Figure]:
    """What is promised, and what came of it."""
    keeping = Slo.parse("agreement=0.99")
    kept = [each for each in found.variants if not keeping.missed(each.figures)]
    fast = max((each.cost.speed for each in kept), default=0.0)
    small = max((each.cost.smaller for each in kept), default=0.0)
    worth = max((max(each.cost.speed / 1.5, each.cost.smaller / 2) for each in kept), default=0.0)
    now = found.confirmed
    stem = "shadow.compress"
    data = f"BERT of four layers on SST-2, {RECORDS:,} records, one thread, CPU seconds in turn"
    best, refused = "1.5 times as fast or half the memory", _refused(deaf)
    made = [
        Figure(
            f"{stem}.accuracy", accuracy, "right", "one half", accuracy / 0.5, data="whole sentences of SST-2"
        ),
        Figure(f"{stem}.worth", worth, "of 1", best, worth, 1.0, n=RECORDS, data=data),
        Figure(f"{stem}.speed", fast, "times", "the champion's time", fast, n=RECORDS, data=data),
        Figure(f"{stem}.memory", small, "times less", "the champion's weights", small, data=data),
        Figure(f"{stem}.harmful_refused", refused, "of 1", "refused", refused, 1.0, n=RECORDS, data=data),
    ]
    if now is not None:
        bound, least = found.slo.bounds["p99_ms"], found.slo.bounds["agreement"]
        p99, agreement = now.cost.p99_ms, now.likeness.agreement
        data = f"{now.name} in a fresh process, {RECORDS:,} other records"
        made += [
            Figure(
                f"{stem}.slo_p99", p99, "ms", f"{bound:g} ms", bound / p99, 1.0,
                n=now.cost.calls, data=f"{data}; calls, by the clock",
            ),
            Figure(
                f"{stem}.slo_agreement", agreement, "of records", f"{least:g}", agreement / least, 1.0,
                n=RECORDS, low=now.likeness.low, data=f"{data}; lower end of 95 %",
            ),
        ]  # fmt: skip
    return made


def _refused(deaf: Variant) -> float:
    """Whether tests or assertions refuse it, agreement aside."""
    broken = deaf.suites is not None and bool(deaf.suites.regressions)
    return float(broken or (deaf.flips is not None and deaf.flips.rate > 0.01))


def compressed(folder: Path) -> tuple[Compressed, Variant]:
    """The ladder, held to half of the champion's memory at 99 % agreement; and the harmful variant."""
    texts = pool()
    half = len(texts) // 2
    train_texts = read("train").text[PHRASES : PHRASES + TRAFFIC].tolist()
    task = CompressionTask(
        Source("hf", "champion", inputs=("text",), classes=(0, 1)), None, "sst2@1", folder,
        batch_of(texts[:half]), batch_of(texts[half:]), traffic=batch_of(train_texts), student="student",
        assertions=[praised_by_no_word, unsure], suites=[suite()], distilling=Distilling(epochs=1),
        effort=Effort(calls=300, latency_s=1.5, rounds=9),
    )  # fmt: skip
    ladder = Ladder(task, progress=lambda line: print(f"# {line}", flush=True))
    # Half of the memory, and a delay that people do not notice: this machine's own p99 moves with its load.
    memory_mb = 0.55e-6 * ladder.champion.cost.memory_bytes
    found = ladder.climb(Slo.parse(f"p99_ms=250,memory_mb={memory_mb:.3f},agreement=0.99"))
    return found, ladder.judge("deaf", task.source, deafened(folder).read_bytes())


def pool() -> list[str]:
    """Whole sentences and phrases that nobody trained on, shuffled."""
    texts = [*read("test").text, *read("dev").text.drop_duplicates()]
    order = np.random.default_rng(0).permutation(2 * RECORDS)
    return [texts[at] for at in order]


def suite() -> Suite:
    """What a sentiment model must be able to do, over 40 cases each."""
    frames = ("the film is {}", "a {} story", "the plot was {} throughout", "this movie feels {}")

    def cases(words: tuple[str, ...], before: str) -> list[dict[str, str]]:
        return [{"text": frame.format(f"{before}{word}")} for frame in frames for word in words]

    return Suite(
        "sentiment",
        (
            MFT(name="test_praise", cases=cases(GOOD, ""), labels=1, capability="words"),
            MFT(name="test_blame", cases=cases(BAD, ""), labels=0, capability="words"),
            MFT(name="test_not_good", cases=cases(GOOD, "not "), labels=0, capability="negation"),
            MFT(name="test_never_good", cases=cases(GOOD, "never "), labels=0, capability="negation"),
        ),
    )


def deafened(folder: Path) -> Path:
    """The champion's weights with words of negation read as the unknown word."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "champion")
    state = AutoModelForSequenceClassification.from_pretrained(folder / "champion").state_dict()
    words = state["bert.embeddings.word_embeddings.weight"]
    known = [tokenizer.convert_tokens_to_ids(word) for word in NEGATIONS]
    words[[each for each in known if each != tokenizer.unk_token_id]] = words[tokenizer.unk_token_id].clone()
    path = folder / "deaf.safetensors"
    path.write_bytes(dump_weights(state))
    return path


def train(folder: Path) -> float:
    """A champion of four layers of 256, a student of one of 128; the champion's accuracy on sentences."""
    from transformers import BertConfig, BertForSequenceClassification

    phrases = read("train")[:PHRASES]
    tokenizer = write_tokenizer(phrases.text.tolist())
    student = BertConfig(**shape(tokenizer, 128, 1))
    student.save_pretrained(folder / "student")
    tokenizer.save_pretrained(folder / "student")
    torch.manual_seed(0)
    module = BertForSequenceClassification(BertConfig(**shape(tokenizer, 256, 4)))
    ids = [tokenizer(text)["input_ids"] for text in phrases.text]
    labels = torch.tensor(phrases.label.to_numpy())
    order = np.argsort([len(each) for each in ids], kind="stable")
    batches = [order[start : start + 64] for start in range(0, len(order), 64)]
    draw = np.random.default_rng(0)
    epochs = 2
    optimiser = torch.optim.AdamW(module.parameters(), lr=4e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-4, total_steps=epochs * len(batches))
    module.train()
    for epoch in range(epochs):
        for at in draw.permutation(len(batches)):
            rows = batches[at]
            fed = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            loss = module(**fed, labels=labels[rows]).loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"# epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    module.train(False)
    module.save_pretrained(folder / "champion")
    tokenizer.save_pretrained(folder / "champion")
    sentences = read("test")
    right = 0
    with torch.inference_mode():
        for start in range(0, len(sentences), 64):
            part = sentences[start : start + 64]
            out = module(**tokenizer(part.text.tolist(), padding=True, return_tensors="pt")).logits.argmax(1)
            right += int((out.numpy() == part.label.to_numpy()).sum())
    return right / len(sentences)


def shape(tokenizer: Any, width: int, layers: int) -> dict[str, Any]:
    """Numbers of a BERT."""
    return {
        "vocab_size": len(tokenizer), "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": width // 64, "intermediate_size": 4 * width, "max_position_embeddings": 80,
        "pad_token_id": 0,
    }  # fmt: skip


def write_tokenizer(texts: list[str]) -> Any:
    """One token per word that stands twice or more."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    counts = Counter(word for text in texts for word in text.split())
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted(word for word, n in counts.items() if n > 1)]
    inner = Tokenizer(models.WordLevel({word: at for at, word in enumerate(names)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # it has no annotations
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=80, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def read(part: str) -> pd.DataFrame:
    """Texts and labels of SST-2, in lower case with single blanks; training phrases shuffled."""
    frame = pd.read_parquet(data_folder("sst2") / f"{part}.parquet")
    frame["text"] = [re.sub(r"\s+", " ", text.lower()).strip() for text in frame.text]
    return frame.sample(frac=1.0, random_state=0, ignore_index=True) if part != "test" else frame


def batch_of(texts: list[str]) -> Batch:
    """Records of texts."""
    return Batch.from_columns(
        {"id": [str(at) for at in range(len(texts))], "inputs.text": texts}, model="sst2"
    )


if __name__ == "__main__":
    main()
