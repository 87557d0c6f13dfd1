"""Words under which counts have the classes of answers and labels."""

from outrider.assertions.comparison.matching import number_of
from outrider.assertions.comparison.typed_text import plain_text, read_typed

NUMBER = "__number__"
"""A fractional number: no class."""


def class_word(text: str | None, *, is_number: bool = False) -> str:
    """Word of a stored answer or label, equal for equal numbers.

    Parameters
    ----------
    is_number
        True where whole numbers are no classes either.

    Examples
    --------
    >>> class_word("cat"), class_word("0.5"), class_word("1") == class_word("1.0")
    ('cat', '__number__', True)
    """
    word = plain_text(text) or ""
    number = number_of(word)
    if (isinstance(number, float) and not number.is_integer()) or (is_number and number is not None):
        return NUMBER
    if isinstance(number, bool) or (number is not None and read_typed(text) == number):
        word = str(int(number))
    return word


def declared_words(classes: list[int | str] | tuple[int | str, ...]) -> tuple[str, ...]:
    """Words of declared classes, in order.

    Texts as given, numbers and truth values by value.
    """
    return tuple(one if isinstance(one, str) else class_word(str(one).lower()) for one in classes)
