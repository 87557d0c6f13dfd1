"""``outrider demo``: the improvement loop on real digits."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from outrider.errors import ConfigError
from outrider.parts import lack_of


def demo(
    once: Annotated[bool, typer.Option(help="End when the loop has closed.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of cards, traffic, selections and training.")] = 0,
    control: Annotated[bool, typer.Option(help="Run a second loop with labels chosen at random.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder of the project.")] = Path("outrider-demo"),
    json: Annotated[bool, typer.Option("--json", help="Write the result as JSON to stdout.")] = False,
) -> None:
    """Run the whole improvement loop on real digits.

    Exit code 0 only if the loop closed. Without a terminal, --once is implied.
    """
    began = time.monotonic()
    if lack := lack_of(["torch", "sklearn", "gx"], "the demo"):
        raise ConfigError(lack)
    from outrider.demo.run import run

    try:
        code = run(
            folder=folder,
            seed=seed,
            once=once or not sys.stdout.isatty(),
            control=control,
            json=json,
            began=began,
        )
    except KeyboardInterrupt:
        typer.echo("interrupted; everything is stopped", err=True)
        raise typer.Exit(130) from None
    raise typer.Exit(code)
