from collections.abc import Sequence

SEPARATOR = ", "


def attribute_of(names: str | Sequence[str]) -> str:
    """Name of a grouping: its columns without their parts.

    Examples
    --------
    >>> attribute_of("inputs.sex,region"), attribute_of(["attrs.sex"])
    ('sex, region', 'sex')
    """
    columns = names.split(",") if isinstance(names, str) else names
    return SEPARATOR.join(one.strip().removeprefix("inputs.").removeprefix("attrs.") for one in columns)


def columns_of(attribute: str) -> list[str]:
    return attribute.split(SEPARATOR)
