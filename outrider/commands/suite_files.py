"""``outrider test import``, ``export`` and ``examples``: suites as data files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Json, as_json, tell

if TYPE_CHECKING:
    from outrider.behavioral_tests import Suite
    from outrider.behavioral_tests.suite_file import WrittenSuite

Seed = Annotated[int, typer.Option(help="Seed of the perturbations.")]
SuiteOut = Annotated[Path, typer.Option("--output", "-o", help="Suite file to write: NAME.suite.json.")]


def import_suite(
    source: Annotated[Path, typer.Argument(help="CheckList suite as JSON lines: .jsonl or .jsonl.gz.")],
    output: SuiteOut,
    released: Annotated[
        bool, typer.Option("--released", help="Only the cases of the released sample, in its order.")
    ] = False,
    fields: Annotated[
        str, typer.Option(help="Names of the texts of a pair, such as question1,question2.")
    ] = "",
    json: Json = False,
) -> None:
    """Convert a CheckList suite into a suite file.

    Its licence stays in the file; omitted tests are listed.
    """
    from outrider.behavioral_tests.suite_file import read_checklist

    try:
        names = [name.strip() for name in fields.split(",") if name.strip()]
        found, left_out = read_checklist(source, released=released, fields=names)
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error}") from error
    _written(found, output, json=json, left_out=left_out)


def export_suite(
    suite: Annotated[Path, typer.Argument(help="Suite file in Python.")],
    output: SuiteOut,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Export the tests of a Python suite as data.

    Templates expanded, perturbations frozen into variants.
    """
    from outrider.behavioral_tests import load_suite
    from outrider.behavioral_tests.suite_file import SUFFIX, export

    check_name(output)
    name = output.name.removesuffix(SUFFIX)  # so that both suites can be distinguished
    _written(export(name, load_suite(suite).tests, seed=seed), output, json=json)


def examples(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .txt, .csv, .jsonl or .parquet.")
    ],
    paths: Annotated[list[Path] | None, typer.Argument(help="Suite files, or folders with them.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write the suites' examples, in order, for predictions elsewhere."""
    from outrider.behavioral_tests.prediction_files import write_examples
    from outrider.behavioral_tests.predictions import asked_by

    asked = asked_by(suites_of(paths), seed=seed)
    if not asked:
        raise ConfigError(
            "no test asks anything: name suite files, or folders with test_*.py or *.suite.json"
        )
    rows = write_examples(asked, output)
    tell(
        {"file": str(output), "examples": rows, "tests": len(asked), "seed": seed},
        f"{output}: {rows} examples of {len(asked)} tests; predict them in this order",
        json=json,
    )


def suites_of(paths: list[Path] | None) -> "list[Suite]":
    """Suites of files and folders; by default of ``behavior``."""
    from outrider.behavioral_tests.suite import find_suites

    return find_suites(paths or [Path("behavior")])


def check_name(path: Path) -> None:
    """Raise ConfigError unless pytest and ``outrider test`` would find the suite file."""
    from outrider.behavioral_tests.suite_file import SUFFIX

    if not path.name.endswith(SUFFIX):
        raise ConfigError(f"{path}: a suite file is called NAME{SUFFIX}")


def _written(
    suite: "WrittenSuite", path: Path, *, json: bool, left_out: Mapping[str, str] | None = None
) -> None:
    from outrider.behavioral_tests.suite_file import write

    check_name(path)
    write(suite, path)
    counts = counted(suite, path)
    if json:
        as_json(counts if left_out is None else counts | {"left_out": left_out})
        return
    typer.echo(f"{path}: {counts['tests']} tests, {counts['cases']} cases, {counts['examples']} examples")
    for name, reason in (left_out or {}).items():
        typer.echo(f"  left out: {name}: {reason}")


def counted(suite: "WrittenSuite", path: Path) -> dict[str, Any]:
    """Number of tests, cases and examples in a suite file."""
    cases = [case for test in suite.tests for case in test.cases]
    return {
        "file": str(path),
        "tests": len(suite.tests),
        "cases": len(cases),
        "examples": sum(len(case.inputs) for case in cases),
    }
