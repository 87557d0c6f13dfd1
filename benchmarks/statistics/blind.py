"""What a comparison says of answers whose change is known: own noise x share changed x where it sits.

Answers state a decision and a number in a sentence. A share of the questions, the noise, is answered in words
that are drawn anew each time, the others always alike; the candidate answers alike, but for a change in a
share of the questions. No verdict may say *same* or *close* of a change that exceeds the margin by half, and
none *different* of an equal candidate.
"""

import json
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.assertions.verdict import records_needed, talk_measures
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive
from outrider.monitor.compare.standing import Standing

Form = Literal["English", "Chinese", "JSON", "score", "label"]
Change = Literal[
    "none", "word", "number", "decision", "topic", "refusal", "language", "length", "style", "order", "words"
]
Where = Literal["anywhere", "longest", "one topic", "noisiest"]
MARGIN, ROWS, RUNS, EVERY = 0.02, 4000, 3, 4
DRAWN = [
    "the",
    "order",
    "parcel",
    "return",
    "label",
    "shop",
    "account",
    "card",
    "payment",
    "notice",
    "receipt",
    "email",
    "courier",
    "driver",
    "depot",
    "street",
    "office",
    "window",
    "morning",
    "evening",
    "monday",
    "friday",
    "weekend",
    "holiday",
    "summer",
    "winter",
    "support",
    "agent",
    "manager",
    "form",
    "link",
    "page",
    "button",
    "photo",
    "invoice",
    "refund",
    "credit",
    "voucher",
    "balance",
    "stock",
    "item",
    "size",
    "colour",
    "brand",
    "model",
    "part",
    "repair",
    "case",
]
SIGNS = (
    "订单包裹退货商店账户支付通知收据邮件快递司机仓库街道办公室早晨晚上周末假期夏"
    "天冬天客服经理表格链接页面按钮照片发票退款余额库存商品尺寸颜色品牌型号零件维修"
)


@dataclass(frozen=True, slots=True)
class Case:
    """Answers of production, and what the candidate changes."""

    form: Form = "English"
    noise: float = 0.0
    change: Change = "none"
    share: float = 1.0
    where: Where = "anywhere"
    agree: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.form}.noise_{self.noise:g}.{self.change}"
        told += "" if self.change == "none" else f".{self.share:g}.{self.where}"
        return (told + ("." + "+".join(self.agree) if self.agree else "")).replace(" ", "_")


class Speaker:
    """System that answers questions by their number."""

    def __init__(self, name: str, case: Case, seed: int, *, is_candidate: bool) -> None:
        self.name, self.retries = name, 0
        self.borrowed: Counter[str] = Counter()
        self._case, self._random = case, np.random.default_rng([seed, is_candidate])
        self._changes = is_candidate and case.change != "none"

    def ask(self, questions: Batch, /) -> Answers:
        """Answers to all questions."""
        rows = questions.rows
        said = [self._answer(int(x)) for x in questions.column("attrs.x")]
        name = {"score": "score", "label": "label"}.get(self._case.form, "text")
        columns: dict[str, Any] = {"id": questions.keys, f"outputs.{name}": said}
        return Answers(
            Batch.from_columns(columns, model="m", rows=rows),
            np.full(rows, "answered", dtype=object),
            np.full(rows, "", dtype=object),
            np.full(rows, 0.01),
            np.full((rows, 2), -1),
            np.zeros(rows, dtype=np.bool_),
        )

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self, x: int) -> Any:
        case = self._case
        varies = _hash(x, "noise") < case.noise
        length = 10 + int(60 * _hash(x, "length") ** 3)
        place = {
            "anywhere": _hash(x, "where"),
            "longest": 1.0 - _hash(x, "length"),
            "one topic": _hash(x // 50, "topic"),
            "noisiest": 0.0
            if varies and _hash(x, "where") < case.share / max(case.noise, case.share)
            else 1.0,
        }[case.where]
        change = case.change if self._changes and place < case.share else "none"
        fixed = np.random.default_rng(x)
        random = self._random if varies else fixed
        if case.form == "score":
            value = 0.001 + 0.008 * fixed.random() + (0.002 * random.normal() if varies else 0.0)
            return 0.0 if change == "number" else 0.01 - value if change == "order" else value
        if case.form == "label":
            return int(random.integers(4)) + (10 if change != "none" else 0)
        return _text(case.form, change, length, fixed, random)


def _text(
    form: Form, change: Change, length: int, fixed: np.random.Generator, random: np.random.Generator
) -> str:
    """Sentence of drawn words around a decision and a number."""
    days, is_approved = 30 + 7 * int(fixed.integers(5)), fixed.random() < 0.5
    if change == "number":
        days += 60
    if change == "decision":
        is_approved = not is_approved
    if change == "refusal":
        return "I'm sorry, but I can't help with that request."
    if change == "language":
        return (
            "Es tut nichts zur Sache, der Antrag ist bei uns und wird nicht vor dem Montag von uns geprüft."
        )
    kinds = ["zq" + word for word in DRAWN] if change in ("topic", "words") else DRAWN
    if form == "Chinese":
        signs = SIGNS[::-1] if change not in ("topic", "words") else "".join(chr(ord(s) + 7) for s in SIGNS)
        said = "".join(random.choice(list(signs), length))
        facts = f"申请已{'批准' if is_approved else '拒绝'},{days}天内"
        return f"{facts},{said}{'很' if change == 'word' else ''}。"
    words = list(random.choice(kinds, length * (3 if change == "length" else 1)))
    decision = "approved" if is_approved else "rejected"
    if change == "word":
        words[0] = "never"
    if form == "JSON":
        found = {"decision": decision, "days": days, "why": " ".join(words)}
        found |= {f"field{at}": at for at in range(12)}
        return json.dumps(dict(reversed(found.items())) if change == "order" else found)
    said = f"the claim is {decision} within {days} days"
    said = f"{days} days: {decision}" if change == "style" else said
    at = int(random.integers(len(words) + 1))
    return " ".join([*words[:at], said, *words[at:]])


def _hash(x: int, name: str) -> float:
    return zlib.crc32(f"{name} {x * 2654435761 % 2**32}".encode()) / 2**32


def compared(case: Case, seed: int, rows: int = ROWS) -> Standing:
    """Comparison until it is decided, of at most so many records."""
    asked = [Speaker(name, case, seed, is_candidate=name != "production") for name in ("production", "new")]
    run = ComparisonRun(asked[0], asked[1:], ComparePlan(margin=MARGIN, seed=seed, agree=case.agree))
    drive(run, _traffic(rows, seed), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    return run.standings[0]


def _traffic(rows: int, seed: int) -> Iterator[Batch]:
    order = np.random.default_rng(seed).permutation(10_000)[:rows]
    for start in range(0, rows, 500):
        x = order[start : start + 500]
        columns = {"id": x.astype(str), "inputs.request": ['{"messages":[]}'] * len(x), "attrs.x": x}
        yield Batch.from_columns(columns, model="m", rows=len(x))


FORMS: tuple[Form, ...] = ("English", "Chinese", "JSON")
EQUAL = tuple(
    Case(form, noise, agree=agree)
    for form in FORMS
    for noise in (0.0, 0.01, 0.3, 1.0)
    for agree in ((), ("facts",), ("words",))
)
PLACES: tuple[Where, ...] = ("anywhere", "longest", "one topic")
CHANGES: tuple[Change, ...] = (
    "word", "number", "decision", "topic", "refusal", "language", "length", "style"
)  # fmt: skip
CHANGED = (
    *(
        Case(form, noise, change, 0.03, where)
        for form in FORMS
        for noise in (0.0, 0.01, 0.3, 1.0)
        for change in CHANGES
        for where in (*PLACES, *(("noisiest",) if noise >= 0.03 else ()))
        if not (change == "style" and form != "English")
    ),
    *(
        Case(form, noise, "number", 0.03, where, ("facts",))
        for form in FORMS
        for noise in (0.0, 0.3, 1.0)
        for where in PLACES
    ),
    *(
        Case("JSON", noise, "decision", 0.03, where, ("$.decision",))
        for noise in (0.0, 1.0)
        for where in PLACES
    ),
    *(Case("score", noise, change, 1.0) for noise in (0.0, 1.0) for change in ("number", "order")),
)
DECIDED = (
    (Case(), "same"),
    (Case("JSON"), "same"),
    (Case("JSON", 0.0, "order"), "same"),
    (Case("label"), "same"),
    (Case("label", 0.02), "same"),
    (Case("score"), "same"),
    (Case(noise=1.0, agree=("facts",)), "same"),
    (Case("English", 0.0, "style", agree=("facts",)), "same"),
    (Case("English", 1.0, "number", 0.33), "different"),
    (Case("English", 1.0, "decision"), "different"),
    (Case("English", 1.0, "words"), "different"),
    (Case("Chinese", 1.0, "words"), "different"),
    (Case("Chinese", 1.0, "refusal"), "different"),
    (Case("English", 0.0, "decision", 0.06), "different"),
    (Case("score", 0.0, "number"), "different"),
    (Case("score", 0.0, "order"), "different"),
)


def silent(*, every: int = EVERY, rows: int = 1000) -> None:
    """Changes beyond the margin that are called same or close, and equal candidates called different."""
    for name, cases, wrong in (
        ("false_same", CHANGED[::every], ("same", "close")),
        ("false_different", EQUAL, ("different", "worse", "better")),
    ):
        words: Counter[str] = Counter()
        for seed, case in enumerate(cases):
            word = compared(case, seed, rows).conclusion.word
            words[word] += 1
            if word in wrong:
                Figure(f"statistics.blind.{name}.{case}", 1.0, f"verdicts {word}", "none", 0.0, n=1).show()
        count = sum(words.values())
        Figure.of_share(
            f"statistics.blind.{name}", count - sum(words[word] for word in wrong), count, "not wrong",
            base=0.99, target=1.0, data=f"one run of a case, {dict(words)}, {rows:,} records, margin 2 %",
        ).show()  # fmt: skip


def decided() -> None:
    """Runs that end with the word that the truth is, and their median records."""
    for case, word in DECIDED:
        found = [compared(case, seed, 10_000) for seed in range(RUNS)]
        right = sum(each.conclusion.word == word for each in found)
        rows = float(np.median([each.rows for each in found]))
        Figure.of_share(
            f"statistics.blind.decided.{case}", right, RUNS, f"verdicts {word}", base=0.9, target=1.0,
            data=f"median {rows:.0f} records, at most 10,000, margin 2 %",
        ).show()  # fmt: skip


def price() -> None:
    """Records until an equal candidate is the same, all asked twice once there is noise."""
    lines = [
        "| production differs from itself in | nothing declared | with `--agree facts` |",
        "|---|---|---|",
    ]
    for noise in (0.0, 0.005, 0.01, 0.05, 0.2, 0.46, 0.92):
        cells = []
        for agree in ((), ("facts",)):
            found = records_needed(
                MARGIN,
                noise,
                1.0 if noise else 0.25,
                measures=len(talk_measures(agree)) + 1,
                is_exact=not agree,
            )
            cells.append("never" if found is None else f"{found:,}")
        lines.append(f"| {100 * noise:g} % | {' | '.join(cells)} |")
    show_table("price", "\n".join(lines))


if __name__ == "__main__":
    price()
    decided()
    silent()
