"""Command with default: ``outrider test behavior`` runs, ``test add`` adds."""

from typing import Any

from typer.core import TyperGroup

DEFAULT = "run"


class DefaultGroup(TyperGroup):
    """Group that calls ``run`` unless another command is named.

    Its help shows the options of ``run``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command in front where none is named."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

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
