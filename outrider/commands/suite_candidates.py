"""``outrider test generate`` and ``review``: test cases from a language model."""

import json as json_format
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Json, as_json, printable, tell
from .suite_files import SuiteOut, check_name

if TYPE_CHECKING:
    from outrider.behavioral_tests.generation import Generated
    from outrider.behavioral_tests.suite_file import WrittenCase, WrittenSuite, WrittenTest
    from outrider.behavioral_tests.suite_file.reviewing import Place, ReviewDecision

Ids = Annotated[list[str] | None, typer.Option(help="Id of a candidate (may be repeated).")]


def generate(
    endpoint: Annotated[str, typer.Option(help="Address of chat/completions.")],
    model: Annotated[str, typer.Option(help="Name of the model at that address.")],
    output: SuiteOut,
    like: Annotated[
        str | None, typer.Option(help="Suite file, or SUITE::TEST, whose style the cases follow.")
    ] = None,
    prompt: Annotated[str, typer.Option(help="Description of the wanted cases.")] = "",
    label: Annotated[str | None, typer.Option(help="Right answer; for --prompt without --like.")] = None,
    capability: Annotated[str, typer.Option(help="Capability; for --prompt without --like.")] = "general",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Candidates per test.")] = 20,
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the endpoint's key.")
    ] = "OUTRIDER_JUDGE_KEY",
    json: Json = False,
) -> None:
    """Generate candidate cases with a language model.

    None counts before `outrider test review`.
    """
    from outrider.behavioral_tests.generation import candidates, chat_generator

    check_name(output)
    if like is None and not prompt:
        raise typer.BadParameter("--like or --prompt is needed: what the cases are about")
    try:
        hook = chat_generator(endpoint, model, key_env=key_env)
    except ValueError as error:
        raise typer.BadParameter(f"--endpoint: {error}") from error
    found = [
        candidates(test, hook, count=count, prompt=prompt, model=model, at=_now())
        for test in _manner(like, label, capability)
    ]
    added = _merge(found, output)
    report = {
        "file": str(output),
        "candidates": added,
        "repeated": sum(each.repeated for each in found),
        "malformed": sum(each.malformed for each in found),
    }
    tell(
        report,
        f"{output}: {added} new candidates (left out: {report['repeated']} repeated, {report['malformed']} "
        f"malformed); none counts before `outrider test review {output}`",
        json=json,
    )


def review(
    file: Annotated[Path, typer.Argument(help="Suite file with candidates.")],
    accept: Ids = None,
    reject: Ids = None,
    label: Annotated[
        list[str] | None, typer.Option(help="ID=ANSWER: accept with this right answer (may be repeated).")
    ] = None,
    accept_all: Annotated[bool, typer.Option("--accept-all", help="Needs --yes-i-read-them.")] = False,
    read: Annotated[
        bool, typer.Option("--yes-i-read-them", help="You have read every candidate of the file.")
    ] = False,
    source: Annotated[str, typer.Option(help="Name of the reviewer.")] = "human",
    json: Json = False,
) -> None:
    """Review candidates one after another, or by options.

    Options are needed without a terminal.
    """
    from outrider.behavioral_tests.suite_file import candidates_of, read_written, update
    from outrider.behavioral_tests.suite_file.reviewing import ReviewDecision, awaiting, decide

    waiting = awaiting(read_written(file))
    if accept_all and not read:
        raise typer.BadParameter(
            f"--accept-all takes {len(waiting)} candidates that a machine wrote: read them, then say so with "
            "--yes-i-read-them"
        )
    decisions: dict[Place, ReviewDecision] = {}
    if accept_all:
        decisions = {(test.name, case.id): ReviewDecision(accept=True) for test, case in waiting}
    decisions |= dict(_given(waiting, accept or [], reject or [], label or []))
    if not decisions and not json:
        decisions = _ask_all(waiting)
    if decisions:
        update(file, lambda suite: decide(suite, decisions, by=source, at=_now()))
    left = candidates_of(read_written(file))
    accepted = sum(each.accept for each in decisions.values())
    if json:
        shown = [] if decisions else [_shown(test, case) for test, case in waiting]
        as_json(
            {
                "file": str(file),
                "accepted": accepted,
                "rejected": len(decisions) - accepted,
                "awaiting": left,
                "candidates": shown,
            }
        )
    else:
        typer.echo(
            f"{file}: {accepted} accepted, {len(decisions) - accepted} rejected, "
            f"{left} candidates await review"
        )


def _manner(like: str | None, label: str | None, capability: str) -> "list[WrittenTest]":
    """Tests to imitate; without one, a single test with only a prompt."""
    from msgspec import UNSET

    from outrider.behavioral_tests import load_suite
    from outrider.behavioral_tests.suite_file import WrittenTest
    from outrider.behavioral_tests.suite_file.exporting import written_test

    if like is None:
        answer = UNSET if label is None else label_value(label)
        if answer is UNSET:
            raise typer.BadParameter("--label is needed with --prompt alone: the right answer of the cases")
        return [WrittenTest(name="generated", kind="MFT", capability=capability, labels=answer, cases=[])]
    path, _, name = like.partition("::")
    suite = load_suite(Path(path))
    tests = [test for test in suite.tests if name in ("", test.name) and test.cases is not None]
    if not tests:
        names = ", ".join(test.name for test in suite.tests)
        raise ConfigError(f"{path} has no test {name!r} with cases; there are {names}")
    return [written_test(test, test.examples()) for test in tests]


def _merge(found: "list[Generated]", path: Path) -> int:
    """Add candidates to a suite file, created if missing; return the number of new ones."""
    from msgspec.structs import replace

    from outrider.behavioral_tests.suite_file import update
    from outrider.behavioral_tests.suite_file.adding import with_case

    added = 0

    def change(suite: "WrittenSuite") -> "WrittenSuite":
        nonlocal added
        for each in found:
            for case in each.test.cases:
                there = {old.id for test in suite.tests if test.name == each.test.name for old in test.cases}
                if case.id not in there:  # one that was reviewed stays as it is
                    suite, _ = with_case(suite, replace(each.test, cases=[case]))
                    added += 1
        return suite

    update(path, change)
    return added


def _given(
    waiting: "list[tuple[WrittenTest, WrittenCase]]", accept: list[str], reject: list[str], label: list[str]
) -> "Iterator[tuple[Place, ReviewDecision]]":
    from outrider.behavioral_tests.suite_file.reviewing import ReviewDecision

    def place(identity: str) -> "Place":
        found = [
            (test.name, case.id) for test, case in waiting if identity in (case.id, f"{test.name}::{case.id}")
        ]
        if len(found) != 1:
            raise ConfigError(
                f"{identity!r} names {len(found)} candidates; one id, or TEST::ID, of those that await "
                "review is expected (--json lists them)"
            )
        return found[0]

    for identity in accept:
        yield place(identity), ReviewDecision(accept=True)
    for identity in reject:
        yield place(identity), ReviewDecision(accept=False)
    for text in label:
        identity, separator, answer = text.partition("=")
        if not separator or not answer:
            raise typer.BadParameter(f"--label: ID=ANSWER expected, got {text!r}")
        yield place(identity), ReviewDecision(accept=True, label=label_value(answer))


def _ask_all(waiting: "list[tuple[WrittenTest, WrittenCase]]") -> "dict[Place, ReviewDecision]":
    from outrider.behavioral_tests.suite_file.reviewing import ReviewDecision

    decisions: dict[Place, ReviewDecision] = {}
    for at, (test, case) in enumerate(waiting, 1):
        typer.echo(f"\n[{at} of {len(waiting)}] {test.name} ({test.kind}, {test.capability})", err=True)
        for example in case.inputs:
            typer.echo(f"  {_printable(example)}", err=True)
        if test.kind == "MFT":
            typer.echo(f"  right answer: {_printable(_shown(test, case)['label'])}", err=True)
        typer.echo("  [a]ccept, [r]eject, [l]abel, [s]kip, [q]uit: ", err=True, nl=False)
        try:
            key = input().strip()
            if key[:1] == "q":
                break
            if key[:1] == "a":
                decisions[test.name, case.id] = ReviewDecision(accept=True)
            elif key[:1] == "r":
                decisions[test.name, case.id] = ReviewDecision(accept=False)
            elif key[:1] == "l":
                typer.echo("  right answer: ", err=True, nl=False)
                if answer := input().strip():  # none is a slip of the finger: the candidate waits on
                    decisions[test.name, case.id] = ReviewDecision(accept=True, label=label_value(answer))
        except EOFError:
            break
    return decisions


def _shown(test: "WrittenTest", case: "WrittenCase") -> dict[str, Any]:
    from msgspec import UNSET

    label = test.labels if case.label is UNSET else case.label
    return {
        "test": test.name,
        "id": case.id,
        "inputs": case.inputs,
        "label": None if label is UNSET else label,
        "model": case.source.model if case.source else "",
    }


def _printable(value: Any) -> str:
    """Generated text without control characters, which could manipulate the terminal."""
    text = value if isinstance(value, str) else json_format.dumps(value, ensure_ascii=False)
    return printable(text)


def label_value(text: str) -> Any:
    """Label parsed as JSON, else the text itself."""
    try:
        return json_format.loads(text)
    except ValueError:
        return text


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
