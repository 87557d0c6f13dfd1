"""Report of a run: tables for people, JSON for programs."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from .cards import FAULTS
from .figures import RunFacts, criteria, fall, fires, pairs, watched_promotion
from .truth import share

CORRECTED = ("id", "before", "after", "labels_before", "labels_after")


def as_json(facts: RunFacts) -> dict[str, Any]:
    """Everything that the tables show."""
    found = criteria(facts)
    refused, watched = facts.refused_job, watched_promotion(facts)
    return {
        "closed": all(criterion.passed for criterion in found),
        "criteria": [asdict(criterion) for criterion in found],
        "accuracy": {name: asdict(pair) | {"gain": pair.gain} for name, pair in pairs(facts.answers).items()},
        "live_accuracy": {
            phase: {fault: share(a.is_right for a in rows) for fault, rows in by_fault(facts, phase).items()}
            for phase in ("healthy", "faulty", "final")
        },
        "fires_per_1000": [asdict(row) for row in fires(facts)],
        "fires_down": fall(fires(facts)),
        "labels": dict(facts.labels),
        "datasets": [
            {key: version[key] for key in ("dataset", "number", "rows", "digest")}
            for version in facts.datasets
        ],
        "corrected": [{key: row[key] for key in CORRECTED} for row in facts.corrected],
        "trained_on": dict(facts.trained_on),
        "promoted": facts.promoted,
        "refused": None if refused is None else refused["result"].get("candidate"),
        "verdicts": [
            {key: verdict[key] for key in ("candidate", "champion", "promoted", "reasons")}
            for verdict in facts.verdicts
        ],
        "watched": None if watched is None else asdict(watched),
        "deliveries": dict(facts.deliveries),
        "records": {"sent": len(facts.answers), "judged": facts.judged},
        "challengers": [
            {key: test[key] for key in ("version", "recommendation", "reasons", "records", "agreement")}
            for test in facts.challengers
        ],
        "seconds": dict(facts.seconds),
        "first_flag_s": facts.first_flag_s,
    }


def by_fault(facts: RunFacts, phase: str) -> dict[str, list[Any]]:
    """Answers of a phase by fault of the camera."""
    rows: dict[str, list[Any]] = {}
    for answer in facts.answers:
        if answer.phase == phase:
            rows.setdefault(answer.fault, []).append(answer)
    return rows


def show(console: Console, facts: RunFacts) -> None:
    """Print the tables and the criteria."""
    for part in (_accuracy(facts), _fires(facts), _challengers(facts), _story(facts), _verdicts(facts)):
        console.print(part)
        console.print()
    console.print(_criteria(facts))
    console.print()


def show_control(console: Console, facts: RunFacts, random: RunFacts) -> None:
    """Print the gain of as many labels chosen at random."""
    table = Table()
    for heading in ("camera", "by assertions", "at random"):
        table.add_column(heading, justify="left" if heading == "camera" else "right")
    chance = pairs(random.answers)
    for name, pair in pairs(facts.answers).items():
        table.add_row(name, f"{100 * pair.gain:+.1f}", f"{100 * chance[name].gain:+.1f}")
    console.print(_titled("Gain in points by how the labelled records were chosen", table))
    console.print()


def _accuracy(facts: RunFacts) -> RenderableType:
    table = Table()
    for heading in ("camera", "version 1", f"version {facts.promoted}", "gain", "frames", "version 1, live"):
        table.add_column(heading, justify="left" if heading == "camera" else "right")
    live = by_fault(facts, "faulty")
    for name, pair in pairs(facts.answers).items():
        rows = [a for fault in (FAULTS if name == "faulty" else [name]) for a in live.get(fault, [])]
        shown = "all faulty ones" if name == "faulty" else name
        table.add_row(
            shown,
            f"{100 * pair.before:.1f} %",
            f"{100 * pair.after:.1f} %",
            f"{100 * pair.gain:+.1f}",
            str(pair.frames),
            f"{100 * share(a.is_right for a in rows):.1f} %",
        )
    return _titled("Accuracy on the same frames of cards that nobody trained on", table)


def _fires(facts: RunFacts) -> RenderableType:
    table = Table()
    for heading in ("assertion", "looks at", "version 1", f"version {facts.promoted}", "change", "precision"):
        table.add_column(heading, justify="left" if heading in ("assertion", "looks at") else "right")
    found = fires(facts)
    for row in found:
        change = f"{100 * (row.after / row.before - 1):+.0f} %" if row.before else "-"
        hits, labels = row.precision_hits, row.precision_labels
        precision = f"{hits}/{labels} = {100 * hits / labels:.0f} %" if labels else "no label"
        looks = "the answer" if row.kind == "output" else "the image"
        table.add_row(row.assertion, looks, f"{row.before:.1f}", f"{row.after:.1f}", change, precision)
    return _titled("Flags per 1,000 records, and how often the model was wrong then", table)


def _challengers(facts: RunFacts) -> RenderableType:
    table = Table()
    for heading in ("challenger", "agrees beyond noise", "95 % interval", "noise floor", "verdict", "advice"):
        table.add_column(
            heading, justify="right" if heading in ("agrees beyond noise", "noise floor") else "left"
        )
    for test in facts.challengers:
        row = next(iter(test["agreement"]), None)
        if row is None:
            continue
        beyond, noise = row["beyond"], row["noise"]
        table.add_row(
            test["version"],
            f"{beyond['value']:.2%}",
            f"{beyond['low']:.2%} to {beyond['high']:.2%} of {row['rows']:,} frames",
            f"{noise['value']:.2%}" if noise else "-",
            row["verdict"],
            test["recommendation"] or f"{test['advice']} so far",
        )
    return _titled("Challengers beside version 1 (`outrider report digits` shows every camera)", table)


def _titled(title: str, table: Table) -> RenderableType:
    return Group(Text(title, style="bold"), table)


def _story(facts: RunFacts) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_row("labels", f"{facts.labels['bought']} bought, {facts.labels['late']} late ones unasked")
    for version in facts.datasets:
        name = f"{version['dataset']}@{version['number']}"
        table.add_row("dataset", f"{name}  {version['rows']} rows  {version['digest'][:16]}")
    if facts.corrected:
        wrong = ", ".join(row["id"] for row in facts.corrected)
        table.add_row("corrected", f"{wrong}  (`outrider dataset diff digits-flagged 1 2`)")
    trained = ", ".join(f"{rows} rows of {name}" for name, rows in facts.trained_on.items())
    table.add_row("training", f"version {facts.promoted} from {trained}")
    if (watched := watched_promotion(facts)) is not None:
        table.add_row("watch", f"{watched.sentence}  (`outrider watch digits`, `outrider history digits`)")
    for message, event in facts.deliveries.items():
        table.add_row("webhook", f"{event['type']}  {message}  {event['deliveries']} delivery")
    table.add_row("seconds", ", ".join(f"{name} {s:.1f}" for name, s in facts.seconds.items()))
    sent = Counter(answer.phase for answer in facts.answers)
    sent["while retraining"] = sent.pop("flow", 0)
    table.add_row("records", ", ".join(f"{phase} {count}" for phase, count in sent.items()))
    if facts.first_flag_s is not None:
        table.add_row("first flag", f"{facts.first_flag_s:.1f} s after the command")
    return table


def _verdicts(facts: RunFacts) -> RenderableType:
    parts: list[RenderableType] = []
    for verdict in facts.verdicts:
        word = "promoted" if verdict["promoted"] else "refused"
        style = "green" if verdict["promoted"] else "red"
        parts.append(Text(f"candidate {verdict['candidate']}: {word}", style=style))
        parts += [Text(f"  {reason}") for reason in verdict["reasons"]]
    return Group(*parts)


def _criteria(facts: RunFacts) -> RenderableType:
    parts: list[RenderableType] = []
    for criterion in criteria(facts):
        mark, style = ("✓", "green") if criterion.passed else ("✗", "bold red")
        parts.append(Text(f"{mark} {criterion.name}: {criterion.numbers}", style=style))
    return Group(*parts)
