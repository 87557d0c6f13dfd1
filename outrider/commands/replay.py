"""``outrider replay``: judge stored traffic again, or send the records of files."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import DECIMAL, DELIMITER, Config, Json, as_json, table
from .replay_files import FileOptions, replay_files

if TYPE_CHECKING:
    from outrider.assertions import Assertion
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.model_sections import ModelSettings
    from outrider.monitor.worker.answers_again import AnswersAgain

COLUMNS = {
    "assertion": "assertion",
    "from": "from",
    "to": "to",
    "before": "flags before",
    "after": "flags after",
    "same": "same",
    "only_before": "only before",
    "only_after": "only after",
}
UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0}
EXAMPLES = 5
FILES = "Files and folders"


def replay(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Model whose stored traffic is judged again; may be left out if there is one. Or files and "
            "folders of records to send to the running service.",
            metavar="[MODEL | FILES...]",
        ),
    ] = None,
    assertions: Annotated[
        list[Path] | None,
        typer.Option(help="File with the assertions to judge with; those of the configuration by default."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="File whose assertions are replayed to compare with; stored flags by default."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this assertion (may be repeated).")] = None,
    since: Annotated[
        str | None, typer.Option(help="Records from this time on: 90m, 6h, 7d, or an ISO 8601 time.")
    ] = None,
    slot: Annotated[str, typer.Option(help="champion, or the version of a challenger.")] = "champion",
    ask_again: Annotated[
        bool, typer.Option(help="Run the models again in place of their stored answers.")
    ] = False,
    write: Annotated[bool, typer.Option(help="Store the flags of the replay, too.")] = False,
    check: Annotated[bool, typer.Option(help="Exit with 1 when the flags differ.")] = False,
    to: Annotated[
        str | None,
        typer.Option("--model", help="Files: model of records without one.", rich_help_panel=FILES),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Files: input columns, a,b,c; without it, all that have no other name.",
            rich_help_panel=FILES,
        ),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="Files: output columns.", rich_help_panel=FILES)
    ] = None,
    attrs: Annotated[
        list[str] | None, typer.Option(help="Files: attribute columns.", rich_help_panel=FILES)
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option(help="Files: columns that are sent as labels.", rich_help_panel=FILES)
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map", help="Files: inputs.age=Age, a column under another name.", rich_help_panel=FILES
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Files: CSV columns to read as text.", rich_help_panel=FILES),
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help=DELIMITER, rich_help_panel=FILES)] = None,
    decimal: Annotated[str, typer.Option(help=DECIMAL, rich_help_panel=FILES)] = ".",
    id_: Annotated[
        str | None,
        typer.Option("--id", help="Files: column with the id; without one, FILE:ROW.", rich_help_panel=FILES),
    ] = None,
    ts: Annotated[
        str | None, typer.Option(help="Files: column with the time.", rich_help_panel=FILES)
    ] = None,
    entity: Annotated[
        str | None, typer.Option(help="Files: column with the entity.", rich_help_panel=FILES)
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="Files: column with the model's version.", rich_help_panel=FILES)
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Files: column with the weight.", rich_help_panel=FILES)
    ] = None,
    speed: Annotated[
        str,
        typer.Option(
            help="Files: max, 1 for the original pace, 10 for ten times that.", rich_help_panel=FILES
        ),
    ] = "max",
    restamp: Annotated[
        bool, typer.Option(help="Files: stamp records with their time of arrival.", rich_help_panel=FILES)
    ] = False,
    block_rows: Annotated[
        int, typer.Option(min=1, max=100_000, help="Files: rows of one request.", rich_help_panel=FILES)
    ] = 1000,
    resume: Annotated[
        Path | None,
        typer.Option(help="Files: file of the progress, to resume from.", rich_help_panel=FILES),
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0, help="Files: seconds to wait for a busy service.", rich_help_panel=FILES)
    ] = 60.0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Judge stored traffic again and compare flags of two revisions.

    Runs with or without a running service.

    With files or folders: send their records to the running service. A name that is a configured model is the
    model; write ./NAME for a folder of that name.
    """
    from outrider.monitor.settings.config import find_config, load_settings

    if paths := _files(what or [], config):
        options = FileOptions(
            model=to,
            inputs=_listed(inputs),
            outputs=_listed(outputs),
            attrs=_listed(attrs),
            labels=_listed(labels),
            mapped=tuple(map_ or ()),
            text=_listed(text),
            delimiter=delimiter,
            decimal=decimal,
            id=id_,
            ts=ts,
            entity=entity,
            version=version,
            weight=weight,
            speed=speed,
            restamp=restamp,
            block_rows=block_rows,
            resume=resume,
            patience_s=patience,
        )
        replay_files(paths, options, config, json=json)
        return
    model = what[0] if what else to
    settings = load_settings(find_config(config).resolve())
    name, chosen = _model(settings, model)
    files = assertions or [settings.path(file) for file in chosen.assertions]
    judges, others = _loaded(files, against, only or ())
    report = _run(settings, name, judges, others, _time(since), slot, ask_again=ask_again, write=write)
    if json:
        as_json(report)
    else:
        _say(report, write=write)
    if check and any(row["only_before"] or row["only_after"] for row in report["assertions"]):
        raise typer.Exit(1)


def _loaded(
    files: list[Path], against: Path | None, only: Collection[str]
) -> "tuple[list[Assertion], list[Assertion] | None]":
    """Assertions to judge with, and those to compare with (None: stored flags), filtered by ``only``."""
    from outrider.assertions import load_assertions

    judges = [judge for file in files for judge in load_assertions(file)]
    others = load_assertions(against) if against else None
    if not only:
        return judges, others
    if unknown := sorted(set(only) - {judge.name for judge in judges}):
        known = ", ".join(judge.name for judge in judges)
        raise typer.BadParameter(f"--only: no assertion {', '.join(unknown)}; there are {known}")
    return _named(judges, only), others and _named(others, only)


def _named(judges: "list[Assertion]", names: Collection[str]) -> "list[Assertion]":
    return [judge for judge in judges if judge.name in names]


def _say(report: dict[str, Any], *, write: bool) -> None:
    table(report["assertions"], COLUMNS, empty="no assertion to replay")
    for row in report["assertions"]:
        for side, sign in (("only_before", "-"), ("only_after", "+")):
            if row[f"{side}_examples"]:
                typer.echo(f"{row['assertion']}: {sign} {', '.join(row[f'{side}_examples'])}")
        if row["input_erased"]:
            examples = ", ".join(row["input_erased_examples"])
            typer.echo(
                f"{row['assertion']}: {row['input_erased']} flags not compared, input erased: {examples}"
            )
    for failed, detail in report["failures"].items():
        typer.echo(f"{failed} gave no verdict on {report['failed_units'][failed]} units: {detail}")
    typer.echo(f"{report['records']} records judged in {report['seconds']:.1f} s")
    if report["expired"]:
        typer.echo(f"{report['expired']} older records are left out with their flags: payloads have expired")
    if write:
        typer.echo(f"{report['written']} flags written")


def _files(what: list[str], config: Path | None) -> list[Path]:
    """Files to send; empty if the argument names a model."""
    from outrider.monitor.settings.config import find_config, load_settings

    if not what:
        return []
    path = find_config(config)
    if len(what) == 1 and path.exists() and what[0] in load_settings(path).models:
        return []
    if len(what) == 1 and not Path(what[0]).exists() and not {"/", "."} & set(what[0]):
        return []
    return [Path(text) for text in what]


def _listed(names: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in names or () for name in text.split(",") if name.strip())


def _run(
    settings: "Settings",
    name: str,
    judges: "list[Assertion]",
    others: "list[Assertion] | None",
    since_us: int,
    slot: str,
    *,
    ask_again: bool,
    write: bool,
) -> dict[str, Any]:
    import threading
    import time

    from outrider.dataops.ledger.commit import Effects
    from outrider.monitor.process.stores import open_stores
    from outrider.monitor.settings.payloads import open_payloads
    from outrider.monitor.stream.erased_inputs import ErasedInputs
    from outrider.monitor.worker import replay as replaying
    from outrider.monitor.worker.pin_payloads import keep_flagged

    if not settings.journal_path.exists():
        raise ConfigError(
            f"{settings.journal_path}: no journal there; `outrider serve` makes one with the data"
        )
    journal, engine = open_stores(settings, threading.Event())
    chosen = settings.models[name]
    payloads = open_payloads(settings, name)
    try:
        until = replaying.judged_until(engine, name, slot)
        which = replaying.stretch(
            journal,
            [*judges, *(others or [])],
            since_us=since_us,
            until=until,
            gaps=replaying.skipped(engine, name),
            expired=(expired := journal.expired_through().get(name, 0)),
        )
        start = time.perf_counter()
        asked = _asked_again(settings, engine, name, slot) if ask_again else nullcontext()
        with asked as again, _progress(replaying.records_in(journal, name, which)) as tell:
            after = replaying.replay(
                engine,
                journal,
                name,
                chosen,
                judges,
                which,
                slot=slot,
                again=again,
                payloads=payloads,
                progress=tell,
            )
        before = None
        if others is not None:
            before = replaying.replay(
                engine, journal, name, chosen, others, which, slot=slot, payloads=payloads
            )
        compared = []
        erased = ErasedInputs(engine, journal, name)
        fired = after.fired()
        known = replaying.stored_revisions(engine, name)
        for judge in judges:
            new = fired.get(judge.name, set())
            if before is not None:
                revision = next((j.revision for j in others or () if j.name == judge.name), None)
                old = before.fired().get(judge.name, set())
            else:
                revision = known.get(judge.name, [None])[-1]
                old = replaying.stored_flags(engine, name, judge.name, revision or "", which, slot=slot)
            uncompared = erased.among(judge, old ^ new)
            row = _compared(judge.name, revision, judge.revision, old - uncompared, new - uncompared)
            compared.append(
                row | {"input_erased": len(uncompared), "input_erased_examples": _examples(uncompared)}
            )
        written = 0
        if write:
            flagged = Effects(name, slot, until, flags=after.flags, members=after.members)
            keep_flagged(journal, payloads, flagged)
            written = replaying.write_back(engine, name, judges, after)
        return {
            "model": name,
            "slot": slot,
            "records": after.records,
            "unanswered": after.unanswered,
            "expired": replaying.count_expired(engine, name, expired, since_us=since_us),
            "seconds": time.perf_counter() - start,
            "assertions": compared,
            "failures": after.failures,
            "failed_units": after.failed_units,
            "written": written,
        }
    finally:
        engine.dispose()
        journal.close()


def _compared(
    name: str, old: str | None, new: str, before: set[tuple[str, str]], after: set[tuple[str, str]]
) -> dict[str, Any]:
    gone, come = before - after, after - before
    return {
        "assertion": name,
        "from": old,
        "to": new,
        "before": len(before),
        "after": len(after),
        "same": len(before & after),
        "only_before": len(gone),
        "only_after": len(come),
        "only_before_examples": _examples(gone),
        "only_after_examples": _examples(come),
    }


def _examples(flags: set[tuple[str, str]]) -> list[str]:
    return [record for record, _ in sorted(flags)[:EXAMPLES]]


def _model(settings: "Settings", name: str | None) -> "tuple[str, ModelSettings]":
    if name is None and len(settings.models) == 1:
        name = next(iter(settings.models))
    if name is None or name not in settings.models:
        known = ", ".join(settings.models) or "none"
        raise ConfigError(f"model expected, one of: {known}; got {name or 'none'}")
    return name, settings.models[name]


@contextmanager
def _asked_again(settings: "Settings", engine: Any, name: str, slot: str) -> "Iterator[AnswersAgain]":
    """Engines that run the judged versions again."""
    from outrider.dataops.payloads.objects import LocalObjects
    from outrider.monitor.engine.groups import EngineGroups
    from outrider.monitor.worker.answers_again import AnswersAgain
    from outrider.monitor.worker.replay import versions_in

    engines = EngineGroups(settings, engine, LocalObjects(settings.data_folder / "objects"))
    try:
        yield AnswersAgain(name, engines, versions_in(engine, name) if slot == "champion" else [slot])
    finally:
        engines.stop()


def _time(text: str | None) -> int:
    """Microseconds since the epoch for ``--since``; 0 for the beginning."""
    if text is None:
        return 0
    try:
        if text[-1:] in UNITS_S:
            at = datetime.now(UTC) - timedelta(seconds=float(text[:-1]) * UNITS_S[text[-1]])
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError as error:
        raise typer.BadParameter(
            f"--since: 90m, 6h, 7d or an ISO 8601 time expected, got {text!r}"
        ) from error
    return int(at.timestamp() * 1e6)


def _progress(total: int) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("judging", total=max(total, 1))
            yield lambda done: bar.update(task, completed=done)

    return shown()
