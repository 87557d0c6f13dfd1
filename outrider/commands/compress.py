"""``outrider compress``: try smaller and faster variants of the champion."""

from pathlib import Path
from typing import Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Config, Json, ModelArgument, as_json, table, write_file


def compress(
    model: ModelArgument = None,
    slo: Annotated[
        str,
        typer.Option(
            help="Bounds to keep, p99_ms=20,agreement=0.99; of p50_ms, p99_ms, rows_per_s, memory_mb, "
            "agreement, flips, regressions."
        ),
    ] = "",
    student: Annotated[
        str | None,
        typer.Option(help="Smaller architecture to distil into: file.py:callable, or a folder."),
    ] = None,
    rows: Annotated[int, typer.Option(min=100, help="Stored records to judge variants on.")] = 2000,
    traffic: Annotated[int, typer.Option(min=0, help="Older records to learn the champion's answers on.")] = (
        20_000
    ),
    suites: Annotated[bool, typer.Option(help="Run the behavioral tests on every variant.")] = True,
    register: Annotated[bool, typer.Option(help="Register the chosen variant as challenger.")] = False,
    gate: Annotated[bool, typer.Option(help="Run the gate on the challenger; needs --register.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Try bf16, int8, sparse, low-rank and distilled variants of the champion.

    On stored traffic; exit code 1 where none keeps --slo.
    """
    import torch

    from outrider.dataops.compression.ladder import Ladder
    from outrider.dataops.compression.report import COLUMNS, conclusion, rows_of
    from outrider.dataops.compression.report import markdown as as_markdown
    from outrider.dataops.compression.slo import Slo
    from outrider.monitor.settings.config import find_config, load_settings
    from outrider.monitor.trainer.compression import compression_task, register_variant

    if gate and not register:
        raise typer.BadParameter("--gate judges a registered challenger: add --register")
    if markdown is not None and not markdown.absolute().parent.is_dir():
        raise typer.BadParameter(f"{markdown} cannot be written: there is no folder {markdown.parent}")
    try:
        wanted = Slo.parse(slo)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings = load_settings(find_config(config).resolve())
    name = _model(list(settings.models), model)
    task = compression_task(
        settings, name, rows=rows, traffic_rows=traffic, student=student, with_suites=suites
    )
    torch.set_num_threads(settings.worker.threads)
    found = Ladder(task, progress=lambda line: typer.echo(line, err=True)).climb(wanted)
    report: dict[str, Any] = found.to_dict()
    if register and found.chosen is not None:
        report |= register_variant(settings, name, found.chosen, champion=found.name, asks_gate=gate)
    if markdown is not None:
        write_file(markdown, as_markdown(report))
    if json:
        as_json(report)
    else:
        table(rows_of(report), COLUMNS, empty="no variant was tried")
        typer.echo("\n".join(conclusion(report)))
        if "registered" in report:
            typer.echo(f"{name} has a challenger {report['registered']}: live traffic judges it from now on")
    if found.chosen is None:
        raise typer.Exit(1)


def _model(known: list[str], given: str | None) -> str:
    if given is None and len(known) == 1:
        return known[0]
    if given not in known:
        raise ConfigError(f"model expected, one of: {', '.join(known) or 'none'}; got {given or 'none'}")
    return given
