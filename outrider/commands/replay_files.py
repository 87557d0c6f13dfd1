"""``outrider replay FILES``: send records of files to the running service."""

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from outrider.errors import ConfigError

from .output import as_json, console, table

NO_ROW, NOTHING = "no row", 5
_SYSTEM = ("id", "ts", "entity", "version", "weight")


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Command-line options for files."""

    model: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attrs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."
    id: str | None = None
    ts: str | None = None
    entity: str | None = None
    version: str | None = None
    weight: str | None = None
    speed: str = "max"
    restamp: bool = False
    block_rows: int = 1000
    resume: Path | None = None
    patience_s: float = 60.0


def replay_files(paths: Sequence[Path], options: FileOptions, config: Path | None, *, json: bool) -> None:
    """Send files and print results; exit code 1 if records were refused."""
    from outrider.monitor.files.readers import find_files
    from outrider.monitor.files.sending import BlockSender, DeliveryProgress, ReplayPace, Report

    from .api import connect

    found = find_files(paths)
    if not found:
        raise typer.Exit(_nothing(paths))
    service = connect(config)
    report = Report()
    progress = DeliveryProgress(options.resume, f"{options.model or ''} at {service.url}")
    sender = BlockSender(
        service,
        model=options.model,
        pace=ReplayPace(_speed(options.speed)),
        report=report,
        restamp=options.restamp,
        patience_s=options.patience_s,
    )
    how = _reading(options, config)
    began = time.perf_counter()
    with _shown(len(found)) as tell:
        for at, (path, name) in enumerate(found):
            _send_file(path, name, how, sender, report, progress, lambda share, at=at: tell(at + share))
            tell(at + 1.0)
    _say(report, time.perf_counter() - began, options.model, json=json)
    if all(one.error == NO_ROW for one in report.files):
        raise typer.Exit(NOTHING)
    if any(one.rejected or one.error for one in report.files):
        raise typer.Exit(1)


def _send_file(path: Path, name: str, how: Any, sender: Any, report: Any, progress: Any, tell: Any) -> None:
    """Send one file; an error of the whole file is reported, and the next file follows."""
    from outrider.data_files import LeftOut
    from outrider.monitor.files.readers import read_blocks
    from outrider.monitor.files.sending import FileReport, is_done

    of = FileReport(str(path))
    report.files.append(of)

    def blame(row: int, reason: str) -> None:
        of.rows += 1
        report.blame(of, row, "", reason)

    left, before = LeftOut(blame), progress.sent(path)
    try:
        for block in read_blocks(path, name, how, left, sent=before):
            sender.send(block.keyed(name), of)
            if is_done(block):
                progress.note(path, block.done, report.refused.get(of.file, ()), before=before)
            tell(block.share)
        if not of.rows and not before.done:
            of.error = NO_ROW
    except ConfigError as error:
        of.error = str(error).removeprefix(f"{path}: ")
    report.notes += left.sentences(path)


def _reading(options: FileOptions, config: Path | None) -> Any:
    from outrider.monitor.files.captures import CaptureNames
    from outrider.monitor.files.columns import Names
    from outrider.monitor.files.readers import ReadOptions

    from .tables import table_options

    system = {name: value for name in _SYSTEM if (value := getattr(options, name)) is not None}
    names = Names(
        options.inputs,
        options.outputs,
        options.attrs,
        options.labels,
        system,
        _mapped(options.mapped),
    )
    inputs, target = _configured(options.model, config)
    captures = CaptureNames(options.inputs or inputs, options.outputs or options.labels, target)
    tables = table_options(options.delimiter, options.decimal, options.text)
    return ReadOptions(names, captures, options.block_rows, tables)


def _configured(model: str | None, config: Path | None) -> tuple[tuple[str, ...], str]:
    """Inputs and target of a model; empty without a configuration."""
    from outrider.monitor.settings.config import find_config, load_settings

    path = find_config(config)
    if not path.exists():
        return (), "label"
    models = load_settings(path).models
    own = models.get(model) if model else next(iter(models.values())) if len(models) == 1 else None
    return (own.inputs, own.target) if own is not None else ((), "label")


def _mapped(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        full, _, name = text.partition("=")
        if (
            not name
            or "." not in full
            or full.partition(".")[0] not in ("inputs", "outputs", "attrs", "label")
        ):
            raise typer.BadParameter(
                f"--map: inputs.age=Age expected (outputs., attrs., label.), got {text!r}"
            )
        found[full] = name
    return found


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise typer.BadParameter(
            f"--speed: max, 1 (as it was) or 10 (ten times as fast) expected, got {text!r}"
        )
    return speed


def _nothing(paths: Sequence[Path]) -> int:
    typer.echo(f"outrider: no file of records in {', '.join(map(str, paths))}", err=True)
    return NOTHING


def _say(report: Any, seconds: float, model: str | None, *, json: bool) -> None:
    rows, accepted, rejected = (
        sum(getattr(f, key) for f in report.files) for key in ("rows", "accepted", "rejected")
    )
    if json:
        as_json(
            {
                "model": model,
                "rows": rows,
                "accepted": accepted,
                "rejected": rejected,
                "seconds": round(seconds, 3),
                "files": [asdict(file) for file in report.files],
                "problems": report.problems,
                "notes": report.notes,
            }
        )
        return
    table(
        [asdict(file) for file in report.files],
        {"file": "file", "rows": "rows", "accepted": "accepted", "rejected": "refused", "error": "error"},
        empty="no file",
    )
    for line in [*report.notes, *_refused_lines(report.problems)]:
        console().print(line, markup=False, highlight=False)
    if rejected > len(report.problems):
        typer.echo(f"the first {len(report.problems)} refused rows are named")
    typer.echo(f"{accepted} of {rows} rows accepted in {seconds:.1f} s, {rejected} refused")


def _refused_lines(problems: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines on refused rows, one for all rows of a file with the same reason, at most 20.

    Examples
    --------
    >>> rows = [{"file": "a.csv", "row": n, "field": "label.x", "reason": "expected int"} for n in (7, 9, 12)]
    >>> _refused_lines([*rows, {"file": "b.csv", "row": 1, "field": "", "reason": "no JSON"}])
    ['a.csv:7: label.x: expected int (and 2 more rows)', 'b.csv:1: no JSON']
    """
    same: dict[tuple[str, str], list[int]] = {}
    for one in problems:
        reason = f"{one['field']}: {one['reason']}" if one["field"] else one["reason"]
        same.setdefault((one["file"], reason), []).append(one["row"])
    lines = []
    for (file, reason), rows in list(same.items())[:20]:
        more = f" (and {len(rows) - 1} more row{'s' if len(rows) > 2 else ''})" if len(rows) > 1 else ""
        lines.append(f"{file}:{rows[0]}: {reason}{more}")
    return lines


@contextmanager
def _shown(files: int) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=float(files))
        yield lambda done: bar.update(task, completed=done)
