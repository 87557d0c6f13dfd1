"""Light command line with one lazily imported module per command."""

import importlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .commands.default_group import Commands

COMMANDS: dict[str, str] = {
    "demo": "Run the whole improvement loop on real digits.",
    "init": "Write a runnable, commented project for a model of your own.",
    "serve": "Run the service: intake, worker, assertion host, trainer and the web page.",
    "reload": "Apply a changed configuration to the running service.",
    "check-config": "Check outrider.toml, load its code, and run that on a sample.",
    "convert": "Write a scikit-learn model as ONNX, torch weights as safetensors.",
    "test": "Run behavioral tests against a model.",
    "assertions": "List the assertions of a running service; show, suspend and resume one.",
    "drift": "Show columns that drifted from a reference, with direction and size.",
    "fairness": "Show selection and error rates by group, with their gaps.",
    "slices": "Find slices on which a model is wrong or flagged more often.",
    "profile": "Show the columns of records: nulls, distinct values, quantiles, categories.",
    "fleet": "Show the verdict on each model, worst first, with the next step.",
    "series": "Show figures over time by judged version, with events.",
    "columns": "List the columns of a model and its rare fields; drop learned ones.",
    "judges": "List judges with their cost and agreement with human labels.",
    "rejected": "List refused records by reason and field, newest first.",
    "flags": "Show flags, newest first.",
    "compare": "Compare candidates with production on traffic; a verdict without labels.",
    "comparisons": "List comparisons that the service keeps; remove one.",
    "record": "Record traffic that reaches the running service, for compare.",
    "replay": "Judge stored traffic again and compare flags; or send files of records.",
    "review": "Review flags one after another: was the model wrong?",
    "alarms": "Show what is watched, and how far each stream is from an alarm.",
    "incidents": "List incidents; acknowledge, mute or resolve them.",
    "label": "Show the label queue, request labels, or give labels.",
    "dataset": "Import, commit, list and read dataset versions.",
    "lineage": "Show a model version's ancestors: datasets, replay, parent, job.",
    "compress": "Try smaller and faster variants of a champion; register the best.",
    "report": "Show a model in one place: challengers beside the champion, flags, suites.",
    "retrain": "Fine-tune a challenger and run the promotion gate.",
    "jobs": "List jobs of the trainer; show, cancel and retry one.",
    "triggers": "Show triggers of retraining, and why each did or did not fire.",
    "gate": "Show the verdicts of the promotion gate.",
    "watch": "Show the watch over a new champion beside the former one.",
    "promote": "Make a version the champion.",
    "rollback": "Make a former champion champion again.",
    "models": "List versions with their status; take one out of the shadow.",
    "history": "Show changes of the champion with actor and reason.",
    "login": "Print a link that opens the page once.",
    "sessions": "List open sessions of browsers; end one.",
    "keys": "List keys; make, limit and revoke them.",
    "log": "Show changes and the keys that asked for them, newest first.",
    "pause": "Pause shadow models or live tests; capture goes on.",
    "resume": "Resume paused work.",
    "backup": "Copy the data folder while the service runs.",
    "restore": "Restore a data folder from a backup.",
    "export": "Write flags, records, a dataset or the dashboards to files.",
    "doctor": "Check this machine and data folder; print import and start-up figures.",
}


class LazyGroup(Commands):
    """Group of commands, each imported when called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's signature
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Stand-in that only knows its help line; :meth:`resolve_command` imports the real one."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def loaded(self, command: Any) -> Any:
        """Import the command that was called."""
        return _load(str(command.name))


def _load(name: str) -> Any:
    module = importlib.import_module(f"outrider.commands.{name.replace('-', '_')}")
    group: Any = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        group.command(name=name, help=COMMANDS[name])(getattr(module, name.replace("-", "_")))
    command = typer.main.get_command(group)
    command.name = name
    return command


app = typer.Typer(
    name="outrider",
    cls=LazyGroup,
    help="ML production monitoring and model assertions.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"outrider {version('outrider')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """ML production monitoring and model assertions."""


def main() -> None:
    """Run a command.

    Errors of ours end with their exit code and one message on stderr.
    """
    from .errors import ConfigError, GateRefused, NothingToRead, OutriderError, ServerError

    try:
        app()
    except OutriderError as error:
        codes = {ConfigError: 3, ServerError: 4, NothingToRead: 5, GateRefused: 1}
        sys.stderr.write(f"outrider: {error}\n")
        sys.exit(next((code for kind, code in codes.items() if isinstance(error, kind)), 1))
    except ModuleNotFoundError as error:
        from .parts import install_hint

        if not (hint := install_hint(error)):
            raise
        sys.stderr.write(f"outrider: {error}{hint}\n")
        sys.exit(3)


if __name__ == "__main__":
    main()
