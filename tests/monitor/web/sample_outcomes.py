"""Outcomes of behavioral tests of the sample's versions, their live rates, and what the gate paired."""

import dataclasses

import numpy as np
from sqlalchemy import Connection, insert, select, update

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, Outcome, Suite, wilson_interval
from outrider.behavioral_tests.compare import compare
from outrider.behavioral_tests.outcome import Measure
from outrider.dataops.improvement import gate, suite_outcomes
from outrider.dataops.state import improvement_tables, tables
from outrider.monitor.trainer.evidence import suite_evidence

HOSTILE_TEXT = "<script>alert('in')</script>"
HOSTILE_NAME = "test_<img src=x onerror=alert(1)>"


def add_outcomes(connection: Connection, model: str, at: int) -> None:
    """Versions 1 (registered), 2 (refused), 3 (promoted), 4 (challenger), and one of a pull request."""
    old, bad, good = (run(wrong) for wrong in (0.02, 0.7, 0.0))
    for version, found, source in (
        ("1", old, "registered"),
        ("2", bad, "gate"),
        ("3", good, "gate"),
        ("4", run(0.1), "cli"),
    ):
        suite_outcomes.keep(connection, model, version, found, source=source, now_us=at + int(version))  # type: ignore[arg-type]  # one of these
    suite_outcomes.keep(connection, model, "pr-<b>7</b>", good[:1], source="pytest", now_us=at + 9)
    verdict = tables.table_of(improvement_tables.GateVerdict)
    for candidate, found in (("2", bad), ("3", good)):
        suites, _ = suite_evidence(compare(old, found))
        asked = {"suites": [dataclasses.asdict(each) for each in suites]}
        row = connection.execute(
            select(verdict.c.reasons, verdict.c.evidence).where(verdict.c.candidate == candidate)
        ).one()
        reasons = [*row.reasons, *gate.decide(gate.Policy(requires=()), gate.Evidence(suites)).reasons]
        connection.execute(
            update(verdict)
            .where(verdict.c.candidate == candidate)
            .values(evidence=row.evidence | asked, reasons=reasons)
        )
    live = {"model": model, "revision": "r1", "tolerance": 0.05, "updated_us": at}
    rates = (
        ("3", "inv_shift", 4210, 84, 0.02, 0.012, 0.031, None),
        ("4", "inv_shift", 2100, 195, 0.093, 0.071, 0.118, at),
        ("3", "live_only", 12, 0, 0.0, 0.0, 0.4, None),
    )
    names = ("version", "test", "asked", "failed", "rate", "low", "high", "alarm_us")
    for values in rates:
        connection.execute(
            insert(tables.table_of(tables.LiveRate)),
            {**live, **dict(zip(names, values, strict=True)), "state": {}},
        )


def run(wrong: float) -> list[Outcome]:
    """Outcomes of a model that is wrong on a share of what is changed."""

    def digits(batch: Batch) -> dict[str, np.ndarray]:
        images = batch.tensor("inputs.image")
        dark = images.max(axis=(1, 2)) < 0.8
        lost = np.arange(batch.rows) % 50 < 50 * wrong
        return {"label": np.where(dark & lost, 3, 8), "score": np.where(lost, 0.41, 0.97)}

    def words(batch: Batch) -> dict[str, np.ndarray]:
        lost = np.array(["god" in t and hash_of(t) < wrong for t in batch.column("inputs.text")])
        return {"label": np.where(lost, "<b>positive</b>", "negative").astype(object)}

    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, (200, 20, 20)).astype(np.float32)
    images[:, 6:14, 9:11] = 1.0
    cases = Batch.from_columns({"inputs.image": images}, model="m")
    texts = [f"The film {n} was not good, said {HOSTILE_TEXT}" for n in range(40)]
    tests = (
        MFT(name="test_eights", capability="reading", cases=cases, labels=[8] * 200, tolerance=0.05),
        INV(
            name="inv_shift",
            capability="robustness",
            description="a shift and a darker light",
            cases=cases,
            perturb=lambda batch, rng: batch.with_columns(
                {"inputs.image": (np.roll(batch.tensor("inputs.image"), 1, axis=2) * 0.6).astype(np.float32)}
            ),
            tolerance=0.1,
        ),
    )
    plain = INV(
        name=HOSTILE_NAME,
        capability="negation <b>",
        cases=texts,
        perturb=lambda batch, rng: batch.with_columns(
            {
                "inputs.text": np.array(
                    [t.replace("not good", "<i>never</i> god") for t in batch.column("inputs.text")],
                    dtype=object,
                )
            }
        ),
    )
    found = [*Suite("test_digits", tests).run(digits), *Suite("test_words", (plain,)).run(words)]
    found = [dataclasses.replace(each, suite="test_digits", revision="r1") for each in found]
    return [*found, measured(wrong), broken()] if wrong != 0.1 else [*found, measured(wrong)]


def hash_of(text: str) -> float:
    """Some share that belongs to a text."""
    return sum(text.encode()) % 40 / 40


def measured(wrong: float) -> Outcome:
    """A test of groups."""
    low = 0.18 * (1 - wrong)
    shares = (("men", 0.272, 9600), ("women", low, 4800), ("gap", 0.272 - low, 14400))
    measures = tuple(
        Measure(
            "gap" if group == "gap" else "selection_rate", share, share - 0.012, share + 0.013, rows,
            "men - women" if group == "gap" else group,
        )
        for group, share, rows in shares
    )  # fmt: skip
    failures = int(0.272 - low > 0.1)
    return Outcome(
        name="test_equal_selection", kind="MFT", capability="fairness", description="men and women alike",
        cases=1, failures=failures, not_applicable=0, tolerance=0.0, rate=float(failures),
        low=wilson_interval(failures, 1)[0], high=wilson_interval(failures, 1)[1], examples=(),
        suite="test_fair", revision="r1", measures=measures,
    )  # fmt: skip


def broken() -> Outcome:
    """A test that raised."""
    return Outcome(
        name="test_long_texts", kind="MFT", capability="robustness", description="", cases=0, failures=0,
        not_applicable=0, tolerance=0.0, rate=0.0, low=0.0, high=1.0, examples=(), suite="test_digits",
        revision="r1", error="ValueError: <u>no column</u> inputs.text",
    )  # fmt: skip
