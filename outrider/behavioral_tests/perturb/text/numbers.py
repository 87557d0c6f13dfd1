"""Numbers in texts: another of the same size."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import drawn

# Separate whole numbers: no part of a price, a time, a date, a version, a code, a share or a decimal.
_NUMBER = re.compile(
    # The digit precedes the lookbehind: the search then skips from digit to digit.
    r"([1-9](?<![\w$€£¥#@&+.,:/'\u2019-][1-9])(?<![$€£¥#@]\s[1-9])\d*)"
    r"(?![\w%°$€£¥]|[.,:/'\u2019-]\w|\s?(?:(?:am|pm|a\.m|p\.m)\b|[%°€]))"
)
_KEPT = {"1", "2", "4"}  # "1 hour" has its own grammar; 2 and 4 stand for words ("2 late", "4 you")


def numbers(name: str = "text", *, by: float = 0.2) -> Perturbation:
    """Change one whole number by up to ``by`` of its size.

    The number of digits is kept. Years (1500 to 2099), prices, times, dates, decimals, codes (``A380``,
    ``#12``) and 1, 2 and 4 are not changed. All occurrences of the number change. Texts without a suitable
    number are not applicable.

    References
    ----------
    CheckList's ``Perturb.change_number``, which may change the number of digits, years and prices.
    """
    if not 0 < by <= 1:
        raise ValueError(f"by must lie in (0, 1], got {by}; it is the largest change relative to the number")

    def change(text: str, draws: list[float]) -> str:
        found = sorted({match[1] for match in _NUMBER.finditer(text)} - _KEPT)
        found = [number for number in found if not _is_year(number)]
        if not found:
            return text
        old = found[int(draws[0] * len(found))]
        options = _near(int(old), by)
        if not options:
            return text
        new = str(options[int(draws[1] * len(options))])
        return _NUMBER.sub(lambda match: new if match[1] == old else match[0], text)

    return drawn(name, change, draws=2)


def _is_year(number: str) -> bool:
    return len(number) == 4 and "1500" <= number <= "2099"


def _near(number: int, by: float) -> range | list[int]:
    digits = len(str(number))
    step = int(number * by) + 1
    low, high = max(number - step, 10 ** (digits - 1)), min(number + step, 10**digits - 1)
    if high - low > 1000:  # far enough apart that none needs leaving out
        return range(number + 1, high + 1) if high > number else range(low, number)
    kept = {str(number), *_KEPT}
    return [other for other in range(low, high + 1) if str(other) not in kept and not _is_year(str(other))]
