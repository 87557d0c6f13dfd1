"""Command groups with a default command, such as ``run`` of ``outrider test``."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

DEFAULT = "run"
_ALIKE = 0.75
"""Similarity above which a word counts as a mistyped command instead of an argument."""


class Commands(TyperGroup):
    """Command group that suggests near names. ``--model NAME`` may replace a model argument."""

    def loaded(self, command: Any) -> Any:
        """Command behind a lazily imported stand-in."""
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Look up the command, and accept ``--model NAME`` for its model argument."""
        known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        self.commands = {name: command for name, command in known.items() if command is not None}
        name, command, rest = super().resolve_command(ctx, args)
        found = command and self.loaded(command)
        return name, found, with_model(found, rest)


class ListByDefault(Commands):
    """Group with default ``list``: ``outrider assertions churn`` lists churn's assertions."""

    default: ClassVar[str] = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if the first argument names no command."""
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        if args and not named and (near := self._near(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near!r}? {self._otherwise(args[0])}")
        return super().parse_args(ctx, args if named else [self.default, *args])

    def _near(self, word: str) -> str | None:
        return next(iter(get_close_matches(word, self.commands, 1, _ALIKE)), None)

    def _otherwise(self, word: str) -> str:
        return f"A model of that name: --model {word}"


class DefaultGroup(ListByDefault):
    """Group whose default is ``run``; its help shows the options of ``run``."""

    default = DEFAULT

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help of the default command, followed by the other commands."""
        default = self.commands[DEFAULT]
        others = {name: command for name, command in self.commands.items() if name != DEFAULT}
        shown = TyperGroup(
            name=self.name,
            commands=others,
            params=default.params,
            help=self.help,
            rich_markup_mode=self.rich_markup_mode,
        )
        shown.format_help(ctx, formatter)

    def _near(self, word: str) -> str | None:
        return None if Path(word).exists() else super()._near(word)

    def _otherwise(self, word: str) -> str:
        return f"There is no file {word}"


def listing(text: str) -> typer.Typer:
    """Group of commands with ``list`` as its default; ``text`` is its help."""
    return typer.Typer(cls=ListByDefault, help=text, add_completion=False, pretty_exceptions_enable=False)


def with_model(command: Any, args: list[str]) -> list[str]:
    """Turn ``--model NAME`` into the positional argument of a command's model."""
    params = [] if command is None else command.params
    models = [each for each in params if each.name == "model" and each.param_type_name == "argument"]
    if not models:
        return args
    models[0].help = f"{models[0].help} Or --model NAME."
    for place, word in enumerate(args[: args.index("--")] if "--" in args else args):
        name, _, value = word.partition("=")
        if name == "--model":
            given = [value] if value else args[place + 1 : place + 2]
            return [*given, *args[:place], *args[place + (1 if value else 2) :]]
    return args
