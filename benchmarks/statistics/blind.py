"""What a comparison says of answers whose change is known: own noise x share changed x where it sits.

Answers state a decision and a number in a sentence. A share of the questions, the noise, is answered in words
that are drawn anew each time, the others always alike; the candidate answers alike, but for a change in a
share of the questions. No verdict may say *same* or *close* of a change that exceeds the margin by half, and
none *different* of an equal candidate.

A case that cannot err is no evidence. So changes count whose equal twin is *same* within as many records;
where noise costs more records than are worth it, the margin is wider, and the change still half beyond it.
Left out: changes that sit in the noisiest answers where noise is taken off (what was declared, classes,
scores), and scores and classes whose noise a wider margin does not outweigh.
"""

import json
import math
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch
from outrider.assertions.comparison.verdict import records_needed, talk_measures
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.candidate_result import CandidateResult
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive

Form = Literal["English", "Chinese", "JSON", "score", "label"]
Change = Literal[
    "none", "word", "number", "decision", "topic", "refusal", "language", "length", "style", "order", "words"
]
Where = Literal["anywhere", "longest", "one topic", "noisiest"]
MARGIN, ROWS, QUESTIONS, TOPIC = 0.02, 4000, 10_000, 50
SEEDS, FEW, WORKERS = 10, 3, 1
"""Runs of a case that is decided, and of one whose answers are always alike: seeds only draw their order."""
MOST_ROWS, MOST_TEXTS = 2000, 1200
"""Records that a case of the grid may cost."""
_SAID = (
    "the order parcel return label shop account card payment notice receipt email courier driver depot "
    "street office window morning evening monday friday weekend holiday summer winter support agent manager "
    "form link page button photo invoice refund credit voucher balance stock item size colour brand model "
    "part repair case"
)
DRAWN = _SAID.split()
SIGNS = (
    "订单包裹退货商店账户支付通知收据邮件快递司机仓库街道办公室早晨晚上周末假期夏"
    "天冬天客服经理表格链接页面按钮照片发票退款余额库存商品尺寸颜色品牌型号零件维修"
)


@dataclass(frozen=True, slots=True)
class Case:
    """Answers of production, and what the candidate changes.

    Attributes
    ----------
    noise
        Share of the questions that are answered in words drawn anew.
    is_moody
        Whether such answers are now and then a refusal, of another language or three times as long.
    is_loose
        Whether the number is drawn anew with the words.
    """

    form: Form = "English"
    noise: float = 0.0
    change: Change = "none"
    share: float = 1.0
    where: Where = "anywhere"
    agree: tuple[str, ...] = ()
    margin: float = MARGIN
    is_moody: bool = False
    is_loose: bool = False

    def __str__(self) -> str:
        told = f"{self.form}.noise_{self.noise:g}.{self.change}"
        told += "" if self.change == "none" else f".{self.share:g}.{self.where}"
        told += "." + "+".join(self.agree) if self.agree else ""
        told += "" if self.margin == MARGIN else f".margin_{self.margin:g}"
        told += ".moody" * self.is_moody + ".loose" * self.is_loose
        return told.replace(" ", "_")

    @property
    def twin(self) -> "Case":
        """The same production with an equal candidate."""
        return replace(self, change="none", share=1.0, where="anywhere")

    @property
    def needed(self) -> int | None:
        """Records that an equal candidate needs to be the same."""
        of_text = 1.0 if self.agree in ((), ("words",)) else 0.8 * self.is_loose
        own = {"label": 0.75, "score": 1.0}.get(self.form, of_text)
        return _needed(self.margin, own * self.noise, self.form, self.agree)


@cache
def _needed(margin: float, own: float, form: Form, agree: tuple[str, ...]) -> int | None:
    is_text = form in FORMS
    return records_needed(
        margin,
        own,
        1.0 if own else 0.25,
        measures=len(talk_measures(agree)) + 1 if is_text else 2,
        is_exact=is_text and not agree,
    )


class Speaker:
    """System that answers questions by their number."""

    def __init__(self, name: str, case: Case, seed: int, *, is_candidate: bool) -> None:
        self.name, self.retries = name, 0
        self.borrowed: Counter[str] = Counter()
        self._case, self._random = case, np.random.default_rng([seed, is_candidate])
        self._changes = is_candidate and case.change != "none"

    def ask(self, questions: Batch, /) -> Answers:
        """Answers to all questions."""
        said = [self._answer(int(x)) for x in questions.column("attrs.x")]
        name = {"score": "score", "label": "label"}.get(self._case.form, "text")
        columns: dict[str, Any] = {"id": questions.keys, f"outputs.{name}": said}
        return Answers.recorded(Batch.from_columns(columns, model="m", rows=questions.rows))

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self, x: int) -> Any:
        case = self._case
        varies = bool(_ranks("noise")[x] < case.noise)
        place = {
            "anywhere": _ranks("where")[x],
            "longest": 1.0 - _ranks("length")[x],
            "one topic": _ranks("topic", QUESTIONS // TOPIC)[x // TOPIC],
            "noisiest": _ranks("noise")[x],
        }[case.where]
        change = case.change if self._changes and place < case.share - 1e-9 else "none"
        fixed = np.random.default_rng(x)
        random = self._random if varies else fixed
        if case.form == "score":
            value = 0.001 + 0.008 * fixed.random() + (0.002 * random.normal() if varies else 0.0)
            changed = {"number": 0.0, "order": 0.01 - value, "word": value + 0.001}
            return changed.get(change, value)
        if case.form == "label":
            label = int(random.integers(4))
            return {"number": label + 10, "topic": 99, "decision": (label + 1) % 4}.get(change, label)
        if case.is_moody and varies and change == "none":
            mood: tuple[Change, ...] = ("refusal", "language", "length", "length", *("none",) * 16)
            change = mood[int(random.integers(20))]
        days = 30 + 7 * int((random if case.is_loose else fixed).integers(5))
        return _text(case.form, change, days, 10 + int(60 * _ranks("length")[x] ** 3), fixed, random)


def _text(
    form: Form,
    change: Change,
    days: int,
    length: int,
    fixed: np.random.Generator,
    random: np.random.Generator,
) -> str:
    """Sentence of drawn words around a decision and a number."""
    is_approved = fixed.random() < 0.5
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
        said = "".join(random.choice(list(signs), length * (3 if change == "length" else 1)))
        facts = f"申请已{'批准' if is_approved else '拒绝'},{days}天内"
        return f"{facts},{said}{'很' if change == 'word' else ''}。"
    words = list(random.choice(kinds, length * (3 if change == "length" else 1)))
    decision = "approved" if is_approved else "rejected"
    if change == "word":
        words[0] = "never"
    if form == "JSON":
        found = {"decision": decision, "days": days, "why": " ".join(words)}
        found |= {f"field{at}": at for at in range(4)}
        return json.dumps(dict(reversed(found.items())) if change == "order" else found)
    said = f"the claim is {decision} within {days} days"
    said = f"{days} days: {decision}" if change == "style" else said
    at = int(random.integers(len(words) + 1))
    words = words[::-1] if change == "order" else words
    return " ".join([*words[:at], said, *words[at:]])


@cache
def _ranks(name: str, count: int = QUESTIONS) -> NDArray[np.float64]:
    """Place of each question in an order of that name, in [0, 1)."""
    found: NDArray[np.float64] = np.random.default_rng(zlib.crc32(name.encode())).permutation(count) / count
    return found


def compared(case: Case, seed: int, rows: int = ROWS, *, growth: float = 1.0) -> CandidateResult:
    """Comparison until it is decided, of at most so many records; each look is at ``growth`` more of them."""
    asked = [Speaker(name, case, seed, is_candidate=name != "production") for name in ("production", "new")]
    plan = ComparePlan(margin=case.margin, seed=seed, agree=case.agree)
    run = ComparisonRun(asked[0], asked[1:], plan)
    # A clock that stands still: looks do not depend on the machine.
    drive(
        run,
        _traffic(rows, seed, growth),
        Until(),
        stop=threading.Event(),
        tell=lambda _: None,
        clock=lambda: 0.0,
    )
    run.close()
    return run.results[0]


def _traffic(rows: int, seed: int, growth: float) -> Iterator[Batch]:
    order, start = np.random.default_rng(seed).permutation(QUESTIONS)[:rows], 0
    while start < rows:
        x = order[start : start + max(32, int(growth * start))]
        columns = {"id": x.astype(str), "inputs.request": ['{"messages":[]}'] * len(x), "attrs.x": x}
        yield Batch.from_columns(columns, model="m", rows=len(x))
        start += len(x)


FORMS: tuple[Form, ...] = ("English", "Chinese", "JSON")
NOISES = (0.0, 0.01, 0.3, 0.6, 0.92, 1.0)
PLACES: tuple[Where, ...] = ("anywhere", "longest", "one topic")
CHANGES: tuple[Change, ...] = ("word", "number", "decision", "topic", "refusal", "language", "length")
OF_FORM: dict[Form, tuple[Change, ...]] = {
    "English": (*CHANGES, "style", "order"), "Chinese": CHANGES, "JSON": CHANGES,
    "score": ("word", "number", "order"), "label": ("number", "topic"),
}  # fmt: skip
CLASSES: dict[Form, str] = {"English": "classes=approved,rejected", "Chinese": "classes=批准,拒绝"}
SEEN: tuple[tuple[tuple[str, ...], tuple[Form, ...], tuple[Change, ...]], ...] = (
    (("facts",), FORMS, ("number", "refusal", "language")),
    (("$.decision",), ("JSON",), ("decision", "refusal", "language")),
    (("facts", "$.decision"), ("JSON",), ("number", "decision", "refusal")),
    *(((names,), (form,), ("decision", "refusal", "language")) for form, names in CLASSES.items()),
)
"""Declarations, and changes that each has to see."""


OF_WORDS: tuple[tuple[float, float, tuple[str, ...]], ...] = (
    (0.0, MARGIN, ()), (0.01, 0.05, ()),
    (0.01, MARGIN, ("words",)), (0.3, 0.05, ("words",)), (0.6, 0.1, ("words",)), (0.92, 0.3, ("words",)),
)  # fmt: skip
"""Noise of whole texts, a margin that some thousand records decide, and what was declared."""
OF_NUMBERS = ((0.01, MARGIN), (0.3, 0.1), (0.6, 0.2))
"""The same of facts, whose number is drawn anew."""
OF_OTHERS = ((0.0, MARGIN), (0.01, MARGIN), (0.3, 0.1), (0.6, 0.2), (0.92, 0.4))
"""The same of scores and classes."""


def corner() -> list[Case]:
    """Changes half beyond the margin, of which an equal twin can be the same."""
    others: tuple[Form, ...] = ("score", "label")
    return [
        *_of_words(),
        *_of_declared(),
        *(
            Case(form, noise, change, 1.5 * margin, where, (), margin)
            for form, (noise, margin) in product(others, OF_OTHERS)
            for change, where in product(OF_FORM[form], PLACES)
        ),
    ]


def _of_words() -> Iterator[Case]:
    """Changes of whole texts."""
    for form, (at, (noise, margin, agree)) in product(FORMS, enumerate(OF_WORDS)):
        places = (*PLACES, "noisiest") if noise and not agree else PLACES
        for (no, change), (place, where) in product(enumerate(OF_FORM[form]), enumerate(places)):
            if at == 0 or (at + no + place) % (3 if agree else 2) == 0:
                yield Case(form, noise, change, 1.5 * margin, where, agree, margin)


def _of_declared() -> Iterator[Case]:
    """Changes that a declaration has to see; every two of noise, change and place together."""
    steady = [(noise, MARGIN, False) for noise in NOISES]
    loose = [(noise, margin, True) for noise, margin in OF_NUMBERS]
    for agree, forms, changes in SEEN:
        noises = [*steady, *loose] if agree == ("facts",) else steady
        for form, (at, (noise, margin, is_loose)), (no, change), (place, where) in product(
            forms, enumerate(noises), enumerate(changes), enumerate(PLACES)
        ):
            if (at + no + place) % 3 == 0:
                yield Case(form, noise, change, 1.5 * margin, where, agree, margin, is_loose=is_loose)


def sampled(seed: int = 0) -> list[Case]:
    """Cases in which every two values of form, noise, change, share and place meet."""
    every = [
        Case(form, noise, change, share, where)
        for form, noise, share in product(OF_FORM, NOISES, (0.03, 0.1, 0.3, 1.0))
        for change in OF_FORM[form]
        for where in (*PLACES, *(("noisiest",) if noise and form in FORMS else ()))
    ]

    def pairs(case: Case) -> set[tuple[Any, ...]]:
        values = (case.form, case.noise, case.change, case.share, case.where)
        return set(combinations(enumerate(values), 2))

    left = set[tuple[Any, ...]]().union(*map(pairs, every))
    rng, found = np.random.default_rng(seed), []
    while left:
        some = [every[at] for at in rng.integers(len(every), size=200).tolist()]
        best = max(some, key=lambda case: len(pairs(case) & left))
        if gained := pairs(best) & left:
            found.append(best)
            left -= gained
    return found


def equal() -> list[Case]:
    """Equal candidates of a production that varies."""
    found = []
    for form, noise, is_moody in product(OF_FORM, NOISES[1:], (False, True)):
        told = [agree for agree, forms, _ in SEEN if form in forms]
        if form in FORMS:
            found += [Case(form, noise, agree=agree, is_moody=is_moody) for agree in ((), ("words",), *told)]
        if not is_moody:
            agree = ("facts",) if form in FORMS else ()
            found.append(Case(form, noise, agree=agree, is_loose=form in FORMS))
    return found


Run = tuple[Case, int, int]
"""Case, seed and records."""


def _word(run: Run) -> str:
    return compared(*run).conclusion.word


def _words(runs: Sequence[Run]) -> list[str]:
    """Words of all runs, in their order."""
    found = []
    with ProcessPoolExecutor(WORKERS) as pool:
        for at, word in enumerate(pool.map(_word, runs, chunksize=4), 1):
            found.append(word)
            if at % 50 == 0:
                print(f"{at} of {len(runs)} runs", file=sys.stderr, flush=True)
    return found


def _rows(case: Case) -> int:
    """Records of a run: some more than an equal candidate needs, where that is few enough."""
    if case.form in FORMS:
        return min(MOST_TEXTS, math.ceil(1.3 * (case.needed or MOST_TEXTS)))
    return min(MOST_ROWS, math.ceil(2.0 * (case.needed or MOST_ROWS)))


def silent(*, every: int = 1) -> None:
    """Changes beyond the margin that are called same or close."""
    corners = corner()
    changed = [*corners, *(case for case in corners if case.form not in FORMS)][::every]
    twins = list(dict.fromkeys(case.twin for case in changed))
    runs = [(twin, 1000 + at, _rows(twin)) for at, twin in enumerate(twins)]
    can = {twin: word == "same" for twin, word in zip(twins, _words(runs), strict=True)}
    words = _words([(case, seed, _rows(case)) for seed, case in enumerate(changed)])
    able = [(case, word) for case, word in zip(changed, words, strict=True) if can[case.twin]]
    _show_wrong(
        "false_same", able, ("same", "close"), f"of {len(changed)} changes half beyond the margin those"
    )
    groups: dict[tuple[str, ...], Counter[str]] = {}
    for case, word in zip(changed, words, strict=True):
        agree = " ".join(case.agree) or "nothing"
        key = (case.form, agree + ", numbers vary" * case.is_loose, f"{case.margin:g}")
        groups.setdefault(key, Counter()).update([word, "able"] if can[case.twin] else [word])
    shown = ("able", "undecided", "different", "same", "close")
    lines = [
        "| answers | declared | margin | equal twin is *same* | undecided | different | same | close |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
        *(f"| {' | '.join([*key, *(str(n[word]) for word in shown)])} |" for key, n in groups.items()),
    ]
    show_table("corner", "\n".join(lines))


def spread(*, every: int = 1) -> None:
    """Changes of any size that are called same or close, and how often they are found."""
    cases = sampled()[::every]
    words = _words([(case, seed, 600) for seed, case in enumerate(cases)])
    found = list(zip(cases, words, strict=True))
    _show_wrong("sampled", found, ("same", "close"), "every two of form, noise, change, share and place")
    by: dict[tuple[float, float], list[bool]] = {}
    for case, word in found:
        by.setdefault((case.noise, case.share), []).append(word == "different")
    shares = (0.03, 0.1, 0.3, 1.0)
    lines = [
        "| own noise | " + " | ".join(f"{100 * share:g} % changed" for share in shares) + " |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {100 * noise:g} % | "
            + " | ".join(f"{sum(by.get((noise, s), []))} of {len(by.get((noise, s), []))}" for s in shares)
            + " |"
            for noise in NOISES
        ),
    ]
    show_table("found", "\n".join(lines))


def alike(*, seeds: int = 3, every: int = 1) -> None:
    """Equal candidates that are called different."""
    cases = equal()[::every]
    runs = [(case, 100 * seed + at, 600) for seed in range(seeds) for at, case in enumerate(cases)]
    found = [(run[0], word) for run, word in zip(runs, _words(runs), strict=True)]
    _show_wrong("false_different", found, ("different", "worse", "better"), "equal, production varies")


def _show_wrong(name: str, found: Iterable[tuple[Case, str]], wrong: tuple[str, ...], data: str) -> None:
    words: Counter[str] = Counter()
    for case, word in found:
        words[word] += 1
        if word in wrong:
            Figure(f"statistics.blind.{name}.{case}", 1.0, f"verdicts {word}", "none", 0.0, n=1).show()
    count = sum(words.values())
    told = ", ".join(f"{n} {word}" for word, n in sorted(words.items()))
    Figure.of_share(
        f"statistics.blind.{name}", count - sum(words[word] for word in wrong), count, "not wrong",
        base=0.99, target=1.0, data=f"{data}: {told}",
    ).show()  # fmt: skip


DECIDED: tuple[tuple[Case, str, int | None], ...] = (
    (Case(), "same", 875),
    (Case("Chinese"), "same", None),
    (Case("JSON"), "same", 1000),
    (Case("JSON", 0.0, "order"), "same", 1000),
    (Case("label"), "same", 866),
    (Case("label", 0.02), "same", None),
    (Case("score"), "same", 1000),
    (Case(noise=1.0, agree=("facts",)), "same", None),
    (Case("JSON", 1.0, agree=("$.decision",)), "same", None),
    (Case("English", 0.0, "style", agree=("facts",)), "same", None),
    (Case("English", 0.92, "number", 0.33), "different", None),
    (Case("English", 1.0, "number", 0.33), "different", None),
    (Case("Chinese", 0.92, "number", 0.33), "different", None),
    (Case("JSON", 0.92, "number", 0.33), "different", None),
    (Case("English", 0.92, "number", 0.33, is_loose=True), "different", None),
    (Case("JSON", 1.0, "number", 0.33, is_loose=True), "different", None),
    (Case("English", 1.0, "decision"), "different", None),
    (Case("English", 1.0, "words"), "different", None),
    (Case("Chinese", 1.0, "words"), "different", None),
    (Case("Chinese", 1.0, "refusal"), "different", None),
    (Case("English", 0.0, "decision", 0.06), "different", None),
    (Case("score", 0.0, "number"), "different", None),
    (Case("score", 0.0, "order"), "different", None),
)
"""Cases, what is true of each, and its records when fixed wording alone could be compared, where it could."""


def _decided(run: Run) -> tuple[str, int]:
    found = compared(*run, growth=0.2)
    return found.conclusion.word, found.rows


def decided() -> None:
    """Runs that end with the word that the truth is, and their records."""
    lines = [
        "| answers | own noise | candidate changes | declared | runs that end so | median records | 90 % |",
        "|---|---:|---|---|---|---:|---:|",
    ]
    with ProcessPoolExecutor(WORKERS) as pool:
        for case, word, before in DECIDED:
            seeds = SEEDS if case.noise or word == "different" else FEW
            runs = list(pool.map(_decided, [(case, seed, QUESTIONS) for seed in range(seeds)]))
            right = sum(said == word for said, _ in runs)
            middle, most = (float(np.quantile([rows for _, rows in runs], q)) for q in (0.5, 0.9))
            Figure.of_share(
                f"statistics.blind.decided.{case}", right, seeds, f"verdicts {word}", base=0.9, target=1.0,
                data=f"median {middle:.0f} records, 90 % quantile {most:.0f}, at most 10,000, margin 2 %",
            ).show()  # fmt: skip
            if before:
                ratio = before / middle
                name = f"statistics.blind.records.{case}"
                Figure(name, middle, "records, median", f"{before} before", ratio, 1 / 1.2, n=seeds).show()
            change = case.change if case.share == 1.0 else f"{case.change} in {100 * case.share:g} %"
            change = "nothing" if case.change == "none" else change
            agree = f"`{' '.join(case.agree)}`" if case.agree else ""
            noise = f"{100 * case.noise:g} %" + ", numbers vary" * case.is_loose
            cells = case.form, noise, change, agree, f"*{word}*: {right} of {seeds}"
            lines.append(f"| {' | '.join(cells)} | {middle:,.0f} | {most:,.0f} |")
    show_table("decided", "\n".join(lines))


def price() -> None:
    """Records until an equal candidate is the same, all asked twice once there is noise."""
    lines = [
        "| production differs from itself in | nothing declared | with `--agree facts` |",
        "|---|---|---|",
    ]
    for noise in (0.0, 0.005, 0.01, 0.05, 0.2, 0.46, 0.92):
        found = [_needed(MARGIN, noise, "English", agree) for agree in ((), ("facts",))]
        cells = ["never" if one is None else f"{one:,}" for one in found]
        lines.append(f"| {100 * noise:g} % | {' | '.join(cells)} |")
    show_table("price", "\n".join(lines))


def main(parts: Sequence[str], every: int) -> None:
    """Run the named parts, or all; one of ``every`` cases of the grid."""
    for name, part in (
        ("price", price),
        ("silent", lambda: silent(every=every)),
        ("spread", lambda: spread(every=every)),
        ("alike", lambda: alike(every=every)),
        ("decided", decided),
    ):
        if name in parts or not parts:
            part()


if __name__ == "__main__":
    named = [each for each in sys.argv[1:] if not each.isdecimal()]
    main(named, int(next((each for each in sys.argv[1:] if each.isdecimal()), "1")))
