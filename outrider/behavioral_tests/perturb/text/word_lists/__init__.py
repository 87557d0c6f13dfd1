"""Word lists of the text perturbations."""

from importlib.resources import files


def lines(name: str) -> tuple[str, ...]:
    """Lines of a word list in file order, without comments.

    Examples
    --------
    >>> "New Orleans" in lines("cities")
    True
    """
    text = (files(__package__) / f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))


def rows(name: str) -> list[list[str]]:
    """Lines of a word list, each split into words.

    Examples
    --------
    >>> ["film", "movie"] in rows("synonyms")
    True
    """
    return [line.split() for line in lines(name)]


def words(name: str) -> tuple[str, ...]:
    """All words of a word list, in file order."""
    return tuple(word for row in rows(name) for word in row)
