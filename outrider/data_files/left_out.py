"""Account of columns and rows left out."""

from collections.abc import Callable
from dataclasses import dataclass, field

Blame = Callable[[int, str], None]
"""Called with a line (or row, from 1) that cannot be used, and why."""
LISTED = 20


@dataclass(slots=True)
class LeftOut:
    """Columns and rows left out of one file, with reasons.

    Attributes
    ----------
    blame
        Called with each row, in place of the list.
    notes
        Sentences on columns, and on rows that hold nothing.
    rows
        Line (row of a file without lines) and reason of the first rows.
    count
        Rows left out.
    """

    blame: Blame | None = None
    notes: list[str] = field(default_factory=list)
    rows: list[tuple[int, str]] = field(default_factory=list)
    count: int = 0

    def column(self, name: str, why: str) -> None:
        """Name a column that is left out."""
        self.note(f"column {name!r} is left out: {why}")

    def note(self, text: str) -> None:
        """Keep a sentence once."""
        if text not in self.notes:
            self.notes.append(text)

    def row(self, line: int, why: str) -> None:
        """Name a row that is left out."""
        self.count += 1
        if self.blame is not None:
            self.blame(line, why)
        elif len(self.rows) < LISTED:
            self.rows.append((line, why))

    def why_no_row(self) -> str:
        """Sentence on a file without a usable row, with its reason."""
        reasons = [f"line {line} is left out: {why}" for line, why in self.rows[:1]] + self.notes[:1]
        return f"no row; {reasons[0]}" if reasons else "no row"

    def sentences(self, file: object) -> list[str]:
        """Everything left out, a line each."""
        lines = [f"{file}: {note}" for note in self.notes]
        lines += [f"{file}, line {line} is left out: {why}" for line, why in self.rows]
        more = self.count - len(self.rows)
        return [*lines, f"{file}: and {more} more rows"] if more and self.rows else lines
