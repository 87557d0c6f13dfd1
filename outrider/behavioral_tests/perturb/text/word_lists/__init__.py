"""Word lists of the perturbations of texts; one's own are arguments."""

from importlib.resources import files


def rows(name: str) -> list[list[str]]:
    """Lines of a list, each split into its words; comments left out.

    Examples
    --------
    >>> ["film", "movie"] in rows("synonyms")
    True
    """
    lines = (files(__package__) / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]


def words(name: str) -> tuple[str, ...]:
    """All words of a list, in file order."""
    return tuple(word for row in rows(name) for word in row)
