"""Facts of a text: numbers with units, dates, leading yes or no."""

import re
import unicodedata

_MONTHS = {
    name: at
    for at, names in enumerate(
        (
            "january jan januar janvier enero", "february feb februar février febrero",
            "march mar märz mars marzo", "april apr avril abril", "may mai mayo", "june jun juni juin junio",
            "july jul juli juillet julio", "august aug août agosto", "september sep sept septembre",
            "october oct oktober octobre octubre", "november nov novembre noviembre",
            "december dec dezember décembre diciembre",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {name: at for at, name in enumerate(_ONES.split())}
_VALUES |= {name: 10 * at for at, name in enumerate(_TENS.split(), 2)}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_UNITS = {
    name: unit
    for unit, names in {
        "day": "days tage tag tagen jours jour días día 天 日",
        "hour": "hours hr hrs stunden heures horas 小时", "minute": "minutes min mins minuten 分钟",
        "second": "seconds sec secs sekunden 秒",
        "week": "weeks wochen semaines semanas 周", "month": "months monate mois meses 个月",
        "year": "years yr yrs jahre ans años 年", "km": "kilometers kilometres kilometer",
        "m": "meters metres meter",
        "kg": "kilograms kilogram kilos", "g": "grams gram", "mile": "miles mi", "pound": "pounds lb lbs",
        "%": "percent prozent 百分之 ", "usd": "$ dollars dollar us$ 美元", "eur": "€ euros euro", "gbp": "£",
        "jpy": "¥ yen", "cny": "yuan rmb 元", "inr": "₹ rs rs.", "cent": "cents",
        "byte": "bytes", "kb": "kilobytes", "mb": "megabytes", "gb": "gigabytes", "tb": "terabytes",
        "mg": "milligrams", "ml": "millilitres milliliters", "l": "litres liters litre liter",
        "mm": "millimetres", "cm": "centimetres", "°c": "c", "°f": "f", "am": "a.m a.m.", "pm": "p.m p.m.",
    }.items()
    for name in (unit, *names.split())
}  # fmt: skip
_LETTER = "a-z\u00c0-\u024f"
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_WORD = "|".join(sorted((*_VALUES, *_SCALES), key=len, reverse=True))
_LISTED = re.compile(r"^[ \t]*(?:#+ )?(?:\*\*)?(?:step )?\d{1,3}[.):](?=\s)", re.MULTILINE | re.IGNORECASE)
_DATE = re.compile(
    rf"\b(?P<y>\d{{4}})[-/](?P<m>\d{{1,2}})[-/](?P<d>\d{{1,2}})\b"
    rf"|\b(?P<d2>\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?(?P<n>{_MONTH})\b\.?(?:,? (?P<y2>\d{{4}})\b)?"
    rf"|\b(?=[adefjmnos])(?P<n3>{_MONTH})\.? (?P<d3>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y3>\d{{4}})\b)?"
    r"|\b(?P<parts>\d{1,2}(?P<sep>[/.-])\d{1,2}(?P=sep)\d{4})\b"
    r"|(?P<y4>\d{4})年(?P<m4>\d{1,2})月(?P<d4>\d{1,2})日"
)
_NUMBER = re.compile(
    rf"(?:(?<![{_LETTER}\d_])|(?<=usd)|(?<=eur)|(?<=gbp))"
    rf"(?P<number>[-\u2212]?(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)*|(?<![\w.])\.\d+))(?:st|nd|rd|th)?"
    rf"(?:(?:[\s-]?(?P<scale>hundred|thousand|million|billion|mn|bn)|(?P<k>k))\b)?"
    rf"(?:[\s-]?(?P<unit>{_UNIT})(?![{_LETTER}]))?"
)
_SPOKEN = re.compile(
    rf"\b(?P<words>(?:{_WORD})(?:(?:[\s-]|\sand\s)(?:{_WORD}))*)\b(?:[\s-](?P<unit>{_UNIT})(?![{_LETTER}]))?"
)
_BEFORE = re.compile(r"(us\$|[$€£¥₹]|\b(?:usd|eur|gbp|rs\.?))\s?\Z")
_ANSWER = re.compile(r"\W*(yes|no|ja|nein|oui|non|sí|是|否|不是|不)(?![\w-])")
_ANSWERS = {
    "ja": "yes",
    "oui": "yes",
    "sí": "yes",
    "是": "yes",
    "nein": "no",
    "non": "no",
    "否": "no",
    "不是": "no",
    "不": "no",
}


def facts_of(text: str) -> list[str]:
    r"""Facts of a text, normalised; numbers of list items do not count.

    A number word counts from two on if it has a unit, else from ten on: *one day* often states nothing.

    Examples
    --------
    >>> facts_of("Yes. Returns take thirty days and cost $1,000.50, by 5 March 2024 (5 %).")
    ['yes', 'date 2024-3-5', '1000.5 usd', '5 %', '30 day']
    >>> facts_of("1. Open it.\n2. Wait 30-days."), facts_of("One of them came.")
    (['30 day'], [])
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    found = []
    if any(map(str.isdecimal, plain)):
        plain = _LISTED.sub(" ", plain)
        found = [_date(each) for each in _DATE.finditer(plain)]
        plain = _DATE.sub(" ", plain) if found else plain
        found += [_number(each) for each in _NUMBER.finditer(plain)]
    found += filter(None, map(_spoken_number, _SPOKEN.finditer(plain)))
    answer = _ANSWER.match(plain)
    return [_ANSWERS.get(answer[1], answer[1]), *found] if answer else found


def number_text(value: float) -> str:
    """Number as text, equal for int and float.

    Examples
    --------
    >>> number_text(1), number_text(1.0), number_text(0.25)
    ('1', '1', '0.25')
    """
    return str(value) if isinstance(value, int) else f"{value:.15g}"


def _date(found: re.Match[str]) -> str:
    if found["parts"]:  # of day and month either may come first
        return f"date {'/'.join(str(int(part)) for part in re.split('[/.-]', found['parts']))}"
    year = found["y"] or found["y2"] or found["y3"] or found["y4"] or "?"
    name = found["n"] or found["n3"]
    month = _MONTHS[name] if name else int(found["m"] or found["m4"])
    return f"date {year}-{month}-{int(found['d'] or found['d2'] or found['d3'] or found['d4'])}"


def _number(found: re.Match[str]) -> str:
    number = found["number"].replace(",", "").replace("\u2212", "-")
    if number.count(".") > 1:
        return number
    scale = {"mn": "million", "bn": "billion"}.get(found["scale"], found["scale"] or "")
    value = float(number) * (1_000 if found["k"] else _SCALES.get(scale, 1))
    before = _BEFORE.search(found.string[max(0, found.start() - 4) : found.start()])
    return _with_unit(value, found["unit"] or (before[1] if before else None))


def _spoken_number(found: re.Match[str]) -> str:
    value = _spoken(found["words"])
    counts = value is not None and value >= (2 if found["unit"] else 10)
    return _with_unit(value, found["unit"]) if value is not None and counts else ""


def _with_unit(value: float, unit: str | None) -> str:
    return f"{number_text(value)} {_UNITS[unit]}" if unit else number_text(value)


def _spoken(words: str) -> float | None:
    """Value of a number in words; None if the words are not a number."""
    total, here = 0.0, -1.0
    for word in re.split(r"[\s-]+", words):
        if word in _SCALES:
            scale = _SCALES[word]
            if here < 0:
                return None
            here *= scale
            if scale > 100:
                total, here = total + here, 0.0
        elif word != "and":
            if here >= 0 and here % 100 and not (here % 100 >= 20 and here % 10 == 0 and _VALUES[word] < 10):
                return None
            here = max(here, 0.0) + _VALUES[word]
    return total + max(here, 0.0)
