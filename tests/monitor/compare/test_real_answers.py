"""Verdicts on real answers: right and wrong solutions, refusals and compliance, models and themselves."""

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from outrider.assertions import Batch
from outrider.cli import app
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.labelled import Conclusion
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive
from tests.requirements import require_data

Pool = Mapping[int, Sequence[str]]
"""Answers to each question, of which one is drawn whenever it is asked."""
Named = Mapping[str, Pool]
AGREE = ((), ("facts",), ("words",))


class Drawn:
    """System that draws its answers from a pool."""

    def __init__(self, name: str, pool: Pool, seed: int) -> None:
        self.name, self.retries, self._pool = name, 0, pool
        self.borrowed: Counter[str] = Counter()
        self._random = np.random.default_rng([seed, name == "production"])

    def ask(self, questions: Batch, /) -> Answers:
        pools = [self._pool[int(x)] for x in questions.column("attrs.x")]
        columns: dict[str, Any] = {
            "id": questions.keys,
            "outputs.text": [each[int(self._random.integers(len(each)))] for each in pools],
        }
        rows = questions.rows
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


def concluded(
    production: Pool,
    candidate: Pool,
    *,
    agree: tuple[str, ...] = (),
    is_recorded: bool = False,
    is_deterministic: bool = False,
    margin: float = 0.02,
    seed: int = 1,
    records: int = 10_000,
) -> Conclusion:
    """Conclusion from all questions that both have answers to."""
    plan = ComparePlan(margin=margin, seed=seed, agree=agree, is_deterministic=is_deterministic)
    asked = None if is_recorded else Drawn("production", production, seed)
    run = ComparisonRun(asked, [Drawn("new", candidate, seed)], plan)
    both = np.random.default_rng(seed).permutation(sorted(production.keys() & candidate.keys()))

    def traffic() -> Iterator[Batch]:
        x = both[:records]
        columns: dict[str, Any] = {
            "id": x.astype(str),
            "inputs.request": ['{"messages":[]}'] * len(x),
            "attrs.x": x,
        }
        if is_recorded:
            columns["outputs.text"] = [production[each][0] for each in x.tolist()]
        yield Batch.from_columns(columns, model="m", rows=len(x))

    drive(run, traffic(), Until(records=records), stop=threading.Event(), tell=lambda _: None)
    run.close()
    return run.results[0].conclusion


def pools(ids: Iterable[Any], texts: Iterable[Any]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each, text in zip(ids, texts, strict=True):
        found.setdefault(int(each), []).append(text)
    return found


@pytest.fixture(scope="module")
def solutions() -> dict[str, dict[int, list[str]]]:
    """Solutions by question: all, right, wrong, and right ones of another question."""
    rows = pd.read_parquet(require_data("gsm8k_model_solutions") / "solutions.parquet")
    right, wrong = (rows[rows.is_correct], rows[~rows.is_correct])
    found = {
        name: pools(each.question_id, each.solution)
        for name, each in {"all": rows, "right": right, "wrong": wrong}.items()
    }
    ids = sorted(found["right"])
    return found | {"other": {x: found["right"][y] for x, y in zip(ids, ids[1:] + ids[:1], strict=True)}}


@pytest.fixture(scope="module")
def completions() -> dict[str, dict[int, list[str]]]:
    """Completions by prompt: of each model, refusals and compliance."""
    rows = pd.read_parquet(require_data("xstest_refusals") / "completions.parquet")
    rows["number"] = pd.factorize(rows["id"])[0]
    kinds = {name: rows[rows.model == name] for name in rows.model.unique()}
    kinds |= {"refused": rows[rows.final_label == "2_full_refusal"]}
    kinds |= {"complied": rows[rows.final_label == "1_full_compliance"]}
    return {name: pools(each.number, each.completion) for name, each in kinds.items()}


@pytest.mark.parametrize("agree", AGREE, ids="+".join)
@pytest.mark.parametrize("kind", ["wrong", "other"])
def test_wrong_solutions_and_those_of_other_questions_are_different_from_right_ones(
    solutions: Named, kind: str, agree: tuple[str, ...]
) -> None:
    assert concluded(solutions["right"], solutions[kind], agree=agree).word == "different"


@pytest.mark.parametrize("kind", ["wrong", "other"])
def test_recorded_solutions_prove_another_kind_only_where_production_has_no_noise(
    solutions: Named, kind: str
) -> None:
    right, candidate = solutions["right"], solutions[kind]
    assert concluded(right, candidate, is_recorded=True, records=100).word == "undecided"
    found = concluded(right, candidate, is_recorded=True, is_deterministic=True)
    assert found.word == "different"


@pytest.mark.parametrize("agree", [(), ("facts",)], ids="+".join)
def test_a_quarter_of_wrong_solutions_is_neither_the_same_nor_close_where_the_others_are_kept(
    solutions: Named, agree: tuple[str, ...]
) -> None:
    right = {x: each[:1] for x, each in solutions["right"].items()}
    wrong = sorted(solutions["wrong"].keys() & right.keys())[: len(right) // 4]
    candidate = right | {x: solutions["wrong"][x] for x in wrong}
    assert concluded(right, right, agree=agree, margin=0.15).word == "same"
    found = concluded(right, candidate, agree=agree, margin=0.15, records=150)
    assert found.word in ("undecided", "different")


@pytest.mark.parametrize("agree", [(), ("facts",)], ids="+".join)
@pytest.mark.parametrize("kind", ["all", "right"])
def test_solutions_drawn_alike_are_not_different(solutions: Named, kind: str, agree: tuple[str, ...]) -> None:
    found = concluded(solutions[kind], solutions[kind], agree=agree, records=60)
    assert found.word == "undecided"


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_refusals_are_different_from_compliance_and_a_model_is_the_same_as_itself(
    completions: Named,
) -> None:
    refused, complied = completions["refused"], completions["complied"]
    for one, two in ((refused, complied), (complied, refused)):
        found = concluded(one, two)
        assert (found.word, "(refusal)" in found.sentence) == ("different", True)
    model = completions["llama2orig"]
    assert concluded(model, model, margin=0.2).word == "same"
    assert concluded(model, model, margin=0.2, is_recorded=True).word == "close"
    assert concluded(complied, complied, records=60).word == "undecided"
    assert concluded(model, completions["gpt4"]).word == "different"


def test_the_command_tells_refusals_from_recorded_compliance(completions: Named, tmp_path: Path) -> None:
    refused, complied = completions["refused"], completions["complied"]
    both = sorted(refused.keys() & complied.keys())
    (tmp_path / "refused.json").write_text(json.dumps({str(x): refused[x][0] for x in both}))
    (tmp_path / "model.py").write_text(
        "import json, pathlib\n"
        "SAID = json.loads((pathlib.Path(__file__).parent / 'refused.json').read_text())\n"
        "def predict(batch):\n    return {'text': [SAID[str(x)] for x in batch.column('inputs.x')]}\n"
    )
    lines = [
        {"id": str(x), "inputs": {"x": x}, "outputs": {"text": complied[x][0]}, "attrs": {}} for x in both
    ]
    (tmp_path / "traffic.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["compare", "--from", str(tmp_path / "traffic.jsonl"), "--deterministic", "--json"]
    ran = CliRunner().invoke(app, [*arguments, "--candidate", f"{tmp_path / 'model.py'}:predict"])
    assert ran.exit_code == 1, ran.output
    found = json.loads(ran.stdout)["candidates"][0]
    assert (found["verdict"], found["records"] <= len(both)) == ("different", True)
