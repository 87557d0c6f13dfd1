"""Commands with a default: ``outrider test behavior`` runs, ``test add`` adds."""

from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

DEFAULT = "run"


class ListByDefault(TyperGroup):
    """Group whose default is ``list``: ``outrider assertions churn`` lists churn's."""

    default: ClassVar[str] = "list"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command before arguments that name no command."""
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if named else [self.default, *args])


class DefaultGroup(ListByDefault):
    """Group that calls ``run`` unless another command is named. Its help shows the options of ``run``."""

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


def listing(text: str) -> typer.Typer:
    """Group of commands with ``list`` as its default; ``text`` is its help."""
    return typer.Typer(cls=ListByDefault, help=text, add_completion=False, pretty_exceptions_enable=False)
