"""Makes the files beside it with CheckList's own classes: ``python make.py`` where CheckList 0.0.11 is.

``NAME.jsonl`` is what ``checklist_converter.py`` writes of the pickled suite NAME, ``NAME.FORMAT.txt`` are
answers in each of CheckList's formats, and ``golden.json`` says which cases CheckList finds
failed and filtered.
"""

import json
import runpy
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

for viewer in ("viewer.test_summarizer", "viewer.suite_summarizer"):  # widgets of notebooks
    module = ModuleType(f"checklist.{viewer}")
    module.TestSummarizer = module.SuiteSummarizer = MagicMock  # type: ignore[attr-defined]
    sys.modules[f"checklist.{viewer}"] = module

import numpy as np  # noqa: E402
from checklist.expect import Expect  # type: ignore[import-not-found]  # noqa: E402
from checklist.test_suite import TestSuite  # type: ignore[import-not-found]  # noqa: E402
from checklist.test_types import DIR, INV, MFT  # type: ignore[import-not-found]  # noqa: E402

HERE = Path(__file__).parent
CONVERTER = HERE.parents[2] / "outrider/behavioral_tests/suite_file/checklist_converter.py"
FORMATS = {
    "pairs": ("softmax", "binary_conf", "pred_and_conf", "pred_only", "pred_and_softmax"),
    "passages": ("pred_and_softmax", "softmax", "pred_only"),
    "words": ("pred_only",),
    "sampled": ("softmax",),
}
SAMPLE = 7
NEVER = -1
CASES = 12


def pair(rng: np.random.Generator) -> Any:
    return f"Is {rng.integers(99)} odd?", f"Is {rng.integers(99)} even?"


def passage(rng: np.random.Generator) -> Any:
    return {"passage": f"There are {rng.integers(99)} of them.", "question": f"How many, {rng.integers(99)}?"}


def word(rng: np.random.Generator) -> Any:
    return f"say {rng.integers(9999)}"


def classes_of(suite: TestSuite, classes: list[Any], example: Any, rng: np.random.Generator) -> None:
    """Tests of single answers, as many kinds as there are."""
    one = [example(rng) for _ in range(CASES)]
    few = [[example(rng) for _ in range(1 + number % 4)] for number in range(CASES)]
    each = [classes[at] for at in rng.integers(len(classes), size=CASES)]
    every = [[classes[at] for at in rng.integers(len(classes), size=len(case))] for case in few]
    first, last = classes[0], classes[-1]
    equal_last = Expect.single(lambda x, pred, *args: pred == last)
    add(suite, MFT(one, labels=last), "one label for all")
    add(suite, MFT(one, labels=each), "a label for each case")
    add(suite, MFT(few, labels=each), "several examples, one label")
    add(suite, MFT(few, labels=every), "several examples, a label for each")
    add(suite, MFT(few, labels=every, agg_fn="all_except_first"), "labels but for the first")
    add(suite, MFT(one, expect=Expect.eq(first)), "eq of a value")
    add(suite, MFT(one, expect=Expect.single(lambda x, pred, *args: pred != first)), "not equal")
    add(
        suite,
        MFT(
            one, labels=each, expect=Expect.single(lambda x, pred, conf, label=None, meta=None: pred == label)
        ),
        "equal by hand",
    )
    add(
        suite,
        MFT(one, labels=each, expect=Expect.slice_single(Expect.eq(), lambda x, pred, *args: pred != first)),
        "sliced by prediction",
    )
    add(suite, MFT(one, labels=each, expect=Expect.combine_or(Expect.eq(), equal_last)), "one or the other")
    add(suite, MFT(one, labels=each, expect=Expect.combine_and(Expect.eq(), equal_last)), "one and the other")
    add(suite, DIR(few, expect=Expect.eq(first)), "directional to a value")
    add(suite, DIR(few, expect=Expect.eq(first), agg_fn="all"), "directional, the original too")
    sliced = Expect.slice_orig(Expect.eq(first), lambda orig, *args: orig == last)
    add(suite, DIR(few, expect=sliced), "where the original is last")
    add(suite, DIR(few, expect=sliced, agg_fn="all"), "where the original is last, itself too")
    add(suite, DIR(few, expect=sliced, agg_fn=Expect.all(ignore_first=True)), "aggregated by Expect.all")
    of_some = Expect.slice_orig(Expect.eq(first), lambda orig, *args: orig in [first, "never"])
    add(suite, DIR(few, expect=of_some), "sliced by a function of one's own")
    named = Expect.slice_orig(Expect.eq(first), lambda orig, *args: orig != NEVER)
    add(suite, DIR(few, expect=named), "sliced by what a name stands for")
    # What cannot be carried.
    add(
        suite,
        MFT(few, labels=each, expect=Expect.slice_single(Expect.eq(), lambda x, pred, *a: pred != first)),
        "sliced by each",
    )
    add(suite, MFT(one, expect=Expect.single(lambda x, pred, *args: len(str(x)) > 3)), "own code")
    add(
        suite,
        MFT(few, expect=Expect.testcase(lambda xs, preds, *args: np.array(preds == preds[0]))),
        "own code over cases",
    )
    add(
        suite,
        MFT(one, expect=Expect.test(lambda xs, preds, *args: [np.array([True]) for _ in xs])),
        "own code over all",
    )
    add(
        suite,
        MFT(one, expect=Expect.combine(Expect.eq(first), Expect.eq(last), lambda a, b: b)),
        "own combination",
    )
    add(
        suite,
        MFT(one, expect=Expect.slice_testcase(Expect.eq(first), lambda *args: np.array([True]))),
        "sliced by cases",
    )
    add(suite, MFT(few, labels=each, agg_fn=lambda results: results.any()), "own aggregation")
    add(suite, MFT(few, labels=[(1, 0)] * CASES, expect=Expect.inv()), "labels that are tuples")
    add(suite, MFT([number * 1j for number in range(3)], labels=first), "complex numbers")


def scores_of(suite: TestSuite, example: Any, rng: np.random.Generator) -> None:
    """Tests of pairs of answers, which look at probabilities."""
    few = [[example(rng) for _ in range(1 + number % 4)] for number in range(CASES)]
    many = [[example(rng) for _ in range(2 + number % 3)] for number in range(CASES)]
    add(suite, INV(many), "invariance")
    add(suite, INV(few, threshold=0.3), "invariance, some without copies")
    add(suite, INV(many, agg_fn="all"), "invariance, the original too")
    add(suite, MFT(few, expect=Expect.inv(0.2)), "invariance as MFT")
    add(
        suite,
        MFT(few, expect=Expect.inv(0.2), agg_fn="all_except_first"),
        "invariance as MFT, but for the first",
    )
    add(suite, DIR(many, expect=Expect.monotonic(increasing=True, tolerance=0.1)), "up")
    add(
        suite,
        DIR(few, expect=Expect.monotonic(increasing=False, tolerance=0.05)),
        "down, some without copies",
    )
    add(suite, DIR(many, expect=Expect.monotonic(label=1, increasing=True, tolerance=0.3)), "up of a class")
    reduced = Expect.slice_orig(
        Expect.monotonic(increasing=False, tolerance=0.1), lambda orig, *args: orig != 1
    )
    add(suite, DIR(many, expect=reduced), "down where the original is another")
    by_pair = Expect.slice_pairwise(Expect.inv(0.1), lambda orig, pred, *args: orig == 1, agg_fn="all")
    add(suite, DIR(many, expect=by_pair), "sliced by pairs, of the original")
    both = Expect.combine_and(Expect.inv(0.1), Expect.monotonic(tolerance=0.1))
    add(suite, DIR(many, expect=both), "invariant and up")
    add(
        suite,
        DIR(few, expect=Expect.combine_or(Expect.inv(0.1), Expect.eq(1)), agg_fn="all"),
        "invariant or one",
    )
    add(
        suite,
        DIR(many, expect=Expect.combine_or(Expect.inv(0.1), Expect.eq(1))),
        "invariant or one, of copies",
    )
    differs = Expect.slice_pairwise(Expect.inv(0.1), lambda orig, pred, *args: orig != pred)
    add(suite, DIR(many, expect=differs), "sliced by pairs")
    add(
        suite,
        DIR(many, expect=Expect.pairwise(lambda orig, pred, *args: orig != pred)),
        "own code over pairs",
    )


def add(suite: TestSuite, test: Any, name: str) -> None:
    suite.add(test, name, capability=type(test).__name__.lower(), description=f"{name}, made for a test")


def answers(name: str, form: str, rows: int, rng: np.random.Generator) -> list[str]:
    probs = np.round(rng.dirichlet([1.0] * (3 if name == "passages" else 2), rows), 3)
    probs[:, -1] = np.round(1 - probs[:, :-1].sum(axis=1), 3)
    label = np.argmax(probs, axis=1)
    if name == "words":
        return [("yes", "not at all")[each] for each in label]
    if form == "binary_conf":
        return [f"{each:.3f}" for each in probs[:, 1]]
    if form == "pred_only":
        return [str(each) for each in label]
    if form == "pred_and_conf":
        return [f"{each} {row[each]:.3f}" for each, row in zip(label, probs, strict=True)]
    lines = [" ".join(f"{each:.3f}" for each in row) for row in probs]
    return lines if form == "softmax" else [f"{each} {line}" for each, line in zip(label, lines, strict=True)]


def verdicts(suite: TestSuite, path: Path, form: str) -> dict[str, Any]:
    """Failed and filtered cases of each test, or what CheckList raised."""
    from checklist.abstract_test import read_pred_file  # type: ignore[import-not-found]

    preds, confs = read_pred_file(str(path), file_format=form)
    found: dict[str, Any] = {}
    for name, test in suite.tests.items():
        part = slice(*suite.test_ranges[name])
        try:
            test.run_from_preds_confs(preds[part], confs[part], overwrite=True)
        except Exception as error:  # noqa: BLE001 - what it raises is what is kept
            found[name] = {"raises": f"{type(error).__name__}: {error}"}
            continue
        passed = list(test.results.passed)
        assert test.fail_idxs().tolist() == [
            at for at, each in enumerate(passed) if each is not None and not each
        ]
        found[name] = {
            "run": len(passed),
            "failed": test.fail_idxs().tolist(),
            "filtered": test.filtered_idxs().tolist(),
        }
    return found


def main() -> None:
    convert = runpy.run_path(str(CONVERTER))["main"]
    golden: dict[str, Any] = {}
    for name, forms in FORMATS.items():
        rng = np.random.default_rng(len(name))
        suite = TestSuite()
        example = {"pairs": pair, "passages": passage}.get(name, word)
        sample = SAMPLE if name == "sampled" else None
        classes_of(suite, ["yes", "not at all"] if name == "words" else [0, 1], example, rng)
        if name != "words":
            scores_of(suite, example, rng)
        with tempfile.TemporaryDirectory() as folder:
            if sample is not None:
                suite.to_raw_file(f"{folder}/asked.txt", n=sample, seed=3)
            suite.save(f"{folder}/{name}.pkl")
            fields = ["--fields", "question1,question2"] if name == "pairs" else []
            convert([f"{folder}/{name}.pkl", str(HERE / f"{name}.jsonl"), *fields])
        carried = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]
        for line in carried:  # answers are about what is carried
            if "not_carried" in line or line["name"] == "sliced by each":
                suite.remove(line["name"])
        with tempfile.TemporaryDirectory() as folder:
            suite.to_raw_file(f"{folder}/asked.txt", n=sample, seed=3)
        rows = max(stop for _, stop in suite.test_ranges.values())
        for form in forms:
            path = HERE / f"{name}.{form}.txt"
            path.write_text("".join(f"{line}\n" for line in answers(name, form, rows, rng)))
            golden[path.name] = verdicts(suite, path, form)
    (HERE / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
