"""``outrider compress``: try smaller and faster champion variants, with costs."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ConfigError

from .output import Config, Json, ModelArgument, as_json, table, write_file

if TYPE_CHECKING:
    from outrider.dataops.compression.compress import Compressed

COLUMNS = {
    "variant": "variant",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rows_per_s": "rows/s",
    "speed": "x as fast",
    "memory_mb": "MB",
    "agreement": "agreement",
    "flips": "flips",
    "regressions": "regressions",
    "verdict": "verdict",
}


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
    also: Annotated[
        list[Path] | None,
        typer.Option(help="Further weights to judge: safetensors (may be repeated)."),
    ] = None,
    budget: Annotated[int, typer.Option(min=1, help="Most variants to measure.")] = 12,
    rows: Annotated[int, typer.Option(min=100, help="Stored records to judge variants on.")] = 2000,
    traffic: Annotated[int, typer.Option(min=0, help="Older records for distillation.")] = 20_000,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of distillation.")] = 3,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of distillation.")] = 3e-4,
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="Only this quantisation, bf16 or bf16+int8_weight_only (may be repeated)."),
    ] = None,
    prune: Annotated[bool, typer.Option(help="Try pruned weights.")] = True,
    distil: Annotated[bool, typer.Option(help="Train pruned weights and the student.")] = True,
    suites: Annotated[bool, typer.Option(help="Run the behavioral tests on every variant.")] = True,
    register: Annotated[bool, typer.Option(help="Register the chosen variant as challenger.")] = False,
    gate: Annotated[bool, typer.Option(help="Run the gate on the challenger; needs --register.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the table and a plot.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Try smaller and faster variants of the champion.

    On stored traffic; exit code 1 where none keeps --slo.
    """
    from outrider.dataops.compression.compress import compress as run
    from outrider.dataops.compression.report import conclusion, rows_of
    from outrider.dataops.compression.report import html as as_html
    from outrider.dataops.compression.report import markdown as as_markdown
    from outrider.dataops.compression.slo import Slo
    from outrider.dataops.compression.variant import PRUNINGS, RECIPES
    from outrider.monitor.settings.config import find_config, load_settings
    from outrider.monitor.trainer.compression import CompressionRequest, prepare

    if gate and not register:
        raise typer.BadParameter("--gate judges a registered challenger: add --register")
    _check_folders(html, markdown)
    try:
        wanted = Slo.parse(slo)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    settings = load_settings(find_config(config).resolve())
    name = _model(list(settings.models), model)
    asked = CompressionRequest(rows, traffic, student, tuple(also or ()), epochs, learning_rate, suites)
    task, unseen = prepare(settings, name, asked)
    _threads(settings.worker.threads)
    found = run(
        task,
        slo=wanted,
        unseen=unseen,
        budget=budget,
        prunings=PRUNINGS if prune else (),
        recipes=tuple(tuple(text.split("+")) for text in recipe) if recipe else RECIPES,
        can_distil=distil,
        progress=lambda line: typer.echo(line, err=True),
    )
    told: dict[str, Any] = found.to_dict()
    if register and found.chosen is not None:
        told |= _register(settings, name, found, asks_gate=gate)
    if html is not None:
        write_file(html, as_html(told))
    if markdown is not None:
        write_file(markdown, as_markdown(told))
    if json:
        as_json(json_format.loads(json_format.dumps(told, allow_nan=False)))
    else:
        table(rows_of(told), COLUMNS, empty="no variant was tried")
        typer.echo("\n".join(conclusion(told)))
        if "registered" in told:
            typer.echo(f"{name} has a challenger {told['registered']}: live traffic judges it from now on")
    if found.chosen is None:
        raise typer.Exit(1)


def _check_folders(*paths: Path | None) -> None:
    """Say before the search, not after it, that its report cannot be written."""
    for path in paths:
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"{path} cannot be written: there is no folder {path.parent}")


def _register(settings: Any, name: str, found: "Compressed", *, asks_gate: bool) -> dict[str, Any]:
    from outrider.monitor.trainer.compression import register_twin

    assert found.chosen is not None
    assert found.source is not None
    version, job = register_twin(
        settings,
        name=name,
        champion=found.name,
        source=found.source,
        weights=found.weights,
        note=f"{found.chosen.variant.name} of {found.name}",
        asks_gate=asks_gate,
    )
    return {"registered": version.version} | ({"job": job} if job else {})


def _model(known: list[str], given: str | None) -> str:
    if given is None and len(known) == 1:
        return known[0]
    if given not in known:
        raise ConfigError(f"model expected, one of: {', '.join(known) or 'none'}; got {given or 'none'}")
    return given


def _threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
