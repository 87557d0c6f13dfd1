"""Compression report: rows of a table, sentences, and both in Markdown."""

from collections.abc import Mapping
from typing import Any

from .slo import LIMITS

Report = Mapping[str, Any]
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


def rows_of(report: Report) -> list[dict[str, Any]]:
    """Champion, every variant and every rung that made none, each with a ``verdict``."""
    failed = [{"variant": name, "verdict": f"not here: {why}"} for name, why in report["failed"].items()]
    return [
        report["champion"] | {"verdict": "; ".join(report["champion"]["missed"])},
        *(each | {"verdict": _verdict(report, each)} for each in report["variants"]),
        *failed,
    ]


def _verdict(report: Report, variant: Report) -> str:
    if variant["variant"] == report["chosen"]:
        return "chosen"
    return "; ".join([*variant["missed"], *variant["marks"]]) or "passes"


def markdown(report: Report) -> str:
    """Table of all variants, and the choice."""
    signs = {"most": "≤", "least": "≥"}
    bounds = ", ".join(f"{name} {signs[LIMITS[name]]} {bound:g}" for name, bound in report["slo"].items())
    lines = [
        f"# {report['model']} compressed, on {report['device']}",
        "",
        f"{report['rows']} records of stored traffic; kept must be {bounds}. Agreement is with the "
        "champion, beyond what it differs from itself in batches of another size "
        f"({report['champion']['noise']:.2%}).",
        "",
        "| " + " | ".join(COLUMNS.values()) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in rows_of(report):
        cells = (_cell(name, row.get(name)).replace("|", r"\|") for name in COLUMNS)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *conclusion(report), ""])


def conclusion(report: Report) -> list[str]:
    """Choice as sentences."""
    lines = [
        f"{name} was refused by the fresh process: {', '.join(missed)}."
        for name, missed in report["refused"].items()
    ]
    if report["chosen"] is None:
        return [*lines, "No variant is faster or smaller and keeps what must be kept: nothing was chosen."]
    now = report["confirmed"]
    return [
        *lines,
        f"Chosen: {report['chosen']}. In a fresh process, on {now['rows']} other records: "
        f"p50 {now['p50_ms']:.2f} ms, p99 {now['p99_ms']:.2f} ms ({now['calls']} calls), "
        f"{now['rows_per_s']:,.0f} rows/s, {now['memory_mb']:.1f} MB of weights, "
        f"agreement {now['agreement']:.2%} (95 % interval from {now['agreement_low']:.2%}).",
    ]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in ("agreement", "flips"):
        return f"{value:.2%}"
    if name == "rows_per_s":
        return f"{value:,.0f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
