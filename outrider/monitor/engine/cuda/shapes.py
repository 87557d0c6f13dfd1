"""Shapes of GPU passes, few so that each is captured once."""

ROWS_EXACT = 2
WIDTH_STEPS = ((128, 16), (256, 32), (1024, 64))
"""Up to a width, the rounding step of widths; beyond the last, its step doubled."""


def padded_rows(rows: int) -> int:
    """Number of rows, padded to 1, 2, 3, 4, 6, 8, ….

    At most every third row is padding.

    Examples
    --------
    >>> [padded_rows(n) for n in (1, 5, 33, 64, 65)]
    [1, 6, 48, 64, 96]
    """
    if rows <= ROWS_EXACT:
        return rows
    power = 1 << (rows - 1).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 else power


def padded_width(width: int, widest: int) -> int:
    """Width padded to the next step, at most ``widest`` met so far.

    A model has as many position embeddings as its texts are long; one position more is a device-side assert,
    after which the whole process must go.

    Examples
    --------
    >>> padded_width(17, widest=512), padded_width(130, widest=512), padded_width(17, widest=20)
    (32, 160, 20)
    """
    step = next((step for limit, step in WIDTH_STEPS if width <= limit), 2 * WIDTH_STEPS[-1][1])
    return max(width, min(widest, -(-width // step) * step))
