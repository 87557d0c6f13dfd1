"""Capitals of a word that takes another's place."""


def like(model: str, word: str) -> str:
    """``word`` with the capitals of ``model``.

    A word with capitals of its own keeps them.

    Examples
    --------
    >>> like("Film", "movie"), like("IS", "is not"), like("I", "we")
    ('Movie', 'IS NOT', 'We')
    """
    if model.isupper() and len(model) > 1:
        return word.upper()
    return word[0].upper() + word[1:] if model[:1].isupper() else word
