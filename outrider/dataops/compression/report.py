"""Compression report in Markdown, and as HTML with a drawing."""

from collections.abc import Mapping
from math import ceil, floor, log2
from typing import Any

from markupsafe import Markup, escape

Told = Mapping[str, Any]
"""`Compressed.to_dict`."""
COLUMNS: Mapping[str, str] = {
    "variant": "variant",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "rows_per_s": "rows/s",
    "speed": "times as fast",
    "memory_mb": "MB",
    "agreement": "agreement",
    "flips": "flips",
    "regressions": "regressions",
    "verdict": "verdict",
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 320, 56, 40
_WORST = 0.8
"""Agreement below it is drawn at the lower edge."""
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #2a9d5c; --bad: #d1495b; --plain: #5b7fd1; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
tr.chosen { font-weight: 600; } tr.failed { opacity: .6; }
svg { width: 100%; max-width: 56rem; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.axis { stroke: var(--line); }
.good { fill: var(--good); } .bad { fill: var(--bad); } .plain { fill: var(--plain); }
"""


def rows_of(told: Told) -> list[dict[str, Any]]:
    """Champion and every variant, each with a ``verdict``.

    Bounds that it misses, behavior that it breaks, or gains that it lacks.
    """
    return [_row(told, each) for each in (told["champion"], *told["variants"])]


def markdown(told: Told) -> str:
    """Table of all variants, and the choice."""
    lines = [
        f"# {told['model']} compressed, on {told['device']}",
        "",
        f"{told['rows']} records of stored traffic; kept must be {_bounds(told)}. Agreement is with the "
        "champion, beyond what it differs from itself in batches of another size "
        f"({told['champion']['noise']:.2%}).",
        "",
        "| " + " | ".join(COLUMNS.values()) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in rows_of(told):
        cells = (_cell(name, row.get(name)).replace("|", r"\|") for name in COLUMNS)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *conclusion(told), ""])


def conclusion(told: Told) -> list[str]:
    """Choice as sentences."""
    said = [
        f"{name} was refused by the fresh process: {', '.join(missed)}."
        for name, missed in told["refused"].items()
    ]
    if told["chosen"] is None:
        return [*said, "No variant is faster or smaller and keeps what must be kept: nothing was chosen."]
    now = told["confirmed"]
    said.append(
        f"Chosen: {told['chosen']}. In a fresh process, on {now['rows']} other records: "
        f"p50 {now['p50_ms']:.2f} ms, p99 {now['p99_ms']:.2f} ms ({now['calls']} calls), "
        f"{now['rows_per_s']:,.0f} rows/s, {now['memory_mb']:.1f} MB of weights, "
        f"agreement {now['agreement']:.2%} (95 % interval from {now['agreement_low']:.2%})."
    )
    return said


def html(told: Told) -> str:
    """A page that makes no request and runs no script."""
    head = Markup("").join(Markup("<th>{}</th>").format(title) for title in COLUMNS.values())
    body = Markup("").join(_html_row(told, row) for row in rows_of(told))
    ends = Markup("").join(Markup("<p>{}</p>").format(line) for line in conclusion(told))
    title = f"{told['model']} compressed, on {told['device']}"
    return str(
        Markup(
            '<!doctype html><html lang="en"><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            '<meta name="viewport" content="width=device-width"><title>{}</title><style>{}</style>'
            "<h1>{}</h1><p>{} records of stored traffic; kept must be {}.</p>{}{}"
            "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
        ).format(title, Markup(_STYLE), title, told["rows"], _bounds(told), drawing(told), ends, head, body)
    )


def drawing(told: Told) -> Markup:
    """SVG of agreement over speed, areas as memory, nothing missed in green."""
    found = [row for row in rows_of(told) if row["agreement"] is not None]
    most: float = max(row["memory_mb"] for row in found) or 1.0
    doublings = [log2(max(row["speed"], 1 / 64)) for row in found]
    first, last = floor(min(doublings)), max(1, ceil(max(doublings)))

    def across(doubling: float) -> float:
        return _LEFT + 20 + (_WIDTH - _LEFT - 150) * (doubling - first) / (last - first)

    def down(agreement: float) -> float:
        return 20 + (_HEIGHT - _BOTTOM - 20) * (1 - max(agreement, _WORST)) / (1 - _WORST)

    parts = [Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        _WIDTH, _HEIGHT, "Agreement with the champion over speed"
    )]  # fmt: skip
    for share in (0.8, 0.85, 0.9, 0.95, 1.0):
        y = down(share)
        label = f"{share:.0%}" if share > _WORST else f"to {share:.0%}"
        parts.append(_line(_LEFT, y, _WIDTH - 10, y) + _text(4, y + 4, label))
    for power in range(first, last + 1):
        x = across(power)
        parts.append(_line(x, 12, x, _HEIGHT - _BOTTOM))
        parts.append(_text(x - 8, _HEIGHT - _BOTTOM + 18, f"{2.0**power:g}x"))
    parts.append(_text(_LEFT, _HEIGHT - 6, "times as fast as the champion; area is memory"))
    written: list[tuple[float, float, float]] = []  # left, right, height of names
    for row, doubling in sorted(zip(found, doublings, strict=True), key=lambda each: -each[0]["agreement"]):
        x, y = across(doubling), down(row["agreement"])
        kind = "plain" if row["variant"] == "champion" else "bad" if row["missed"] else "good"
        at, right = y + 4, x + 14 + 7 * len(row["variant"])
        while any(abs(at - other) < 13 and x < end and start < right for start, end, other in written):
            at += 3
        written.append((x, right, at))
        parts.append(_line(x, y, x + 12, at - 4) if at > y + 4 else Markup(""))
        parts.append(
            Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill-opacity="0.6"/>').format(
                kind, x, y, 3 + 7 * (row["memory_mb"] / most) ** 0.5
            )
            + _text(x + 12, at, row["variant"])
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _row(told: Told, each: Told) -> dict[str, Any]:
    if each["failure"]:
        verdict = f"not here: {each['failure']}"
    elif each["variant"] == told["chosen"]:
        verdict = "chosen"
    else:
        verdict = "; ".join([*each["missed"], *each["marks"]])
    return {**each, "verdict": verdict or ("" if each["variant"] == "champion" else "passes")}


def _bounds(told: Told) -> str:
    from .slo import LIMITS

    signs = {"most": "≤", "least": "≥"}
    return ", ".join(f"{name} {signs[LIMITS[name]]} {bound:g}" for name, bound in told["slo"].items())


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("agreement", "flips"):
        return f"{value:.2%}"
    if name == "rows_per_s":
        return f"{value:,.0f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _html_row(told: Told, row: Told) -> Markup:
    kind = "chosen" if row["variant"] == told["chosen"] else "failed" if row["failure"] else ""
    cells = Markup("").join(Markup("<td>{}</td>").format(_cell(name, row.get(name))) for name in COLUMNS)
    return Markup('<tr class="{}">{}</tr>').format(kind, cells)


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        x1, y1, x2, y2
    )


def _text(x: float, y: float, text: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(x, y, escape(text))
