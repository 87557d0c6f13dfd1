"""Report of a comparison as JSON, text, Markdown and exit code."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from outrider.assertions.comparison.agreement import EVERYTHING, Tally
from outrider.assertions.comparison.slice_ranking import SliceDifference
from outrider.assertions.comparison.verdict import percent
from outrider.assertions.comparison.verdict_sentence import share_text
from outrider.assertions.times import utc_text

from .candidate_result import CandidateResult
from .chat_asker import system_prompt
from .forecast import costs
from .pair_texts import question_of, short
from .plan import ComparePlan
from .run import DEAD, ComparisonRun, Ending
from .sides import WARM_UP, Side

EXAMPLES = 5
ENDINGS: Mapping[Ending, str] = {
    "decided": "every candidate has its verdict",
    "records": "as many records were asked about as wanted",
    "time": "the time was up",
    "traffic": "the traffic was over",
    "stopped": "it was stopped",
    "running": "it goes on",
}
_CUT = ("truncated", "bytes of something else")
_UNPROVEN, _NOTHING, _UNDECIDED = 1, 5, 6
_PLAIN = {ord(mark): f"&#{ord(mark)};" for mark in "&<>|[]`*_~#!\\"} | {ord("\n"): " "}


@dataclass(frozen=True, slots=True)
class ComparisonOrigin:
    """Start time, and addresses and prompts by system name."""

    began_us: int | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Result of a comparison; ``data`` is the object that ``--json`` prints."""

    data: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        run: ComparisonRun,
        plan: ComparePlan,
        *,
        ending: Ending,
        funnel: Mapping[str, Any],
        seconds: float,
        prices: Mapping[str, tuple[float, float]] | None = None,
        model: str | None = None,
        origin: ComparisonOrigin | None = None,
    ) -> "CompareReport":
        prices = prices or {}
        counts = dict(funnel) | {"asked": run.asked, "comparable": run.compared}
        origin = origin or ComparisonOrigin()
        production = _priced(run.production.to_dict(), prices) | _named("production", run, origin)
        candidates = [_candidate(each, prices) | _named(each.name, run, origin) for each in run.results]
        expected = run.forecast(run.columns)
        return cls(
            ({} if model is None else {"model": model})
            | ({} if origin.began_us is None else {"began": utc_text(origin.began_us)})
            | {
                "margin": plan.margin,
                "ended": ending,
                "seconds": round(seconds, 1),
                "records": counts,
                "notes": [*_of_the_end(run, ending), *_notes(run, plan, funnel)],
                "plan": {
                    "expected": expected,
                    "cost": costs(expected, [production, *candidates]),
                    "seed": plan.seed,
                },
                "production": production,
                "candidates": candidates,
            }
        )

    def exit_code(self, *, allows_different: bool = False) -> int:
        """0: same, close or better; 1: worse, or different unless allowed; 6: undecided; 5:
        nothing could be compared."""
        words = {each["verdict"] for each in self.data["candidates"]}
        if words == {"undecided"} and not any(each["records"] for each in self.data["candidates"]):
            return _NOTHING
        if words & ({"worse"} if allows_different else {"worse", "different"}):
            return _UNPROVEN
        return _UNDECIDED if "undecided" in words else 0

    def sentences(self) -> list[str]:
        verdicts = [each["sentence"] + "." for each in self.data["candidates"]]
        return verdicts + [f"Note: {each}." for each in self.data["notes"]]

    def text(self) -> str:
        lines = self.sentences()
        lines += ["", _funnel_line(self.data), ""]
        for each in self.data["candidates"]:
            lines += [each["name"], *_indented(_facts(each, self.data["production"])), ""]
            for at, example in enumerate(each["examples"], 1):
                lines += _indented([f"{at}. {question_of(example)}"])
                lines += [
                    f"     production: {short(example['production'])}",
                    f"     {each['name']}: {short(example['candidate'])}",
                ]
        return "\n".join(lines).rstrip()

    def markdown(self, *, has_examples: bool = True) -> str:
        """Markdown for a pull request comment; without examples it contains no content of records."""
        candidates = self.data["candidates"]
        head = [
            "| candidate | verdict | differs beyond noise | unanswered | p50 | p99 |",
            "|---|---|---|---|---|---|",
        ]
        noted = [f"- {_cell(each)}" for each in self.data["notes"]]
        verdicts = [f"**{each['verdict'].capitalize()}.** {_cell(each['sentence'])}." for each in candidates]
        rows = [*head, *map(_markdown_row, candidates)]
        parts = ["\n".join(verdicts), "\n".join(rows), _funnel_line(self.data)]
        if noted:
            parts.append("\n".join(noted))
        if has_examples:
            parts += [_markdown_examples(each) for each in candidates if each["examples"]]
        return "\n\n".join(parts) + "\n"

    def json(self) -> str:
        return json.dumps(self.data, indent=2, default=str)


def _candidate(result: CandidateResult, prices: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    rows = [
        {
            "measure": measure,
            "records": found.rows,
            "verdict": found.word,
            "beyond_noise": {"value": found.value, "low": found.low, "high": found.high},
            "is_noise_known": found.is_noise_known,
            "why": found.why,
            "more": found.more,
        }
        | _noise(result.comparison.tallies[measure, EVERYTHING])
        for measure, found in {**result.verdict.measures, **result.verdict.shown}.items()
    ]
    side = _priced(result.side.to_dict(), prices)
    return side | {
        "verdict": result.conclusion.word,
        "sentence": result.conclusion.sentence,
        "records": result.rows,
        "agreement": rows,
        "slices": [asdict(each) | {"is_proven": each.is_proven} for each in _largest_first(result)],
        "outcomes": {kind: asdict(each) for kind, each in result.outcome_verdicts().items()},
        "judge": asdict(judge) if (judge := result.judge_verdict()) else None,
        "preferences": result.pair_labels.judged,
        "texts": None if (energy := result.energy_verdict()) is None else energy.to_dict(),
        "unlabelled": asdict(result.unlabelled),
        "history": [asdict(look) for look in result.looks],
        "examples": result.examples_by_energy[:EXAMPLES],
        "to_label": [one | {"right": result.labels.get(one["id"])} for one in result.to_label],
    }


def _named(name: str, run: ComparisonRun, origin: ComparisonOrigin) -> dict[str, str]:
    """Address of a system, and its system prompt if prompts are compared."""
    found = {"address": origin.addresses.get(name), "prompt": origin.prompts.get(name)}
    if name == "production" and origin.prompts and run.question is not None:
        found["prompt"] = system_prompt(run.question) or ""
    return {what: text for what, text in found.items() if text is not None}


def _of_the_end(run: ComparisonRun, ending: Ending) -> list[str]:
    if ending != "stopped":
        return []
    return [f"the comparison was stopped: this is a partial report, of {run.asked:,} records"]


def _notes(run: ComparisonRun, plan: ComparePlan, funnel: Mapping[str, Any]) -> list[str]:
    return [*_of_traffic(run, funnel), *_of_slices(run, plan), *_of_systems(run)]


def _of_traffic(run: ComparisonRun, funnel: Mapping[str, Any]) -> Iterator[str]:
    lines = funnel.get("lines", [])
    for line in lines[:1]:
        where = f"the first is {line['file']}:{line['line']}: {line['reason']}"
        is_cut = any(word in line["reason"] for word in _CUT)
        what = "bodies may be cut or compressed: let them be copied whole" if is_cut else "fix or remove them"
        yield f"{funnel['unreadable']:,} records cannot be read; {where}; {what}"
    for each in funnel.get("reasons", []):
        yield f"{each['count']:,} requests are not asked: {each['reason']}"
    if further := funnel.get("further turns"):
        yield f"{further:,} records are not asked: of each conversation one counts, which is drawn"
    if run.unrecorded:
        yield f"{run.unrecorded:,} records hold no answer of production: name --production to ask it"
    if funnel.get("seen") == 0:
        yield "the traffic holds no record"
    if came := funnel.get("came redacted"):
        yield f"{came:,} records came redacted: what production answered to them then is not compared"
    if redacted := funnel.get("redacted"):
        yield f"dropped or redacted: {', '.join(redacted)}"
    for name in funnel.get("not_redacted", []):
        yield f"--drop, --hash: {name} did not occur: check its spelling"


def _of_slices(run: ComparisonRun, plan: ComparePlan) -> Iterator[str]:
    there = sorted(name for name in run.columns if name.startswith("attrs.")) or ["no attribute"]
    for name in plan.slices:
        if run.columns and name not in run.columns:
            yield f"--slice {name}: no record has it; there is {', '.join(there[:10])}"


def _of_systems(run: ComparisonRun) -> Iterator[str]:
    for (one, other), count in run.alike.items():
        if count >= DEAD:
            yield f"{one} and {other} gave equal answers to all {count:,} questions: are they one?"
    for side in (run.production, *(each.side for each in run.results)):
        yield from _of_side(side)
    for result in run.results:
        if result.is_silent and not result.side.is_unasked:
            asked = sum(result.side.fates.values())
            yield f"{result.name} did not answer any more and was asked {asked:,} questions only"


def _of_side(side: Side) -> Iterator[str]:
    if count := side.fates.get("unasked"):
        many = (
            "question never left this machine and says"
            if count == 1
            else "questions never left this machine and say"
        )
        yield f"{side.name}: {count:,} {many} nothing of it; most often: {side.why_unasked}"
    if side.cached:
        both = f"a cache gave {side.cached:,} of {sum(side.fates.values()):,} answers"
        yield f"{side.name}: {both}, which tell no noise; have it pass by requests with x-outrider-shadow"
    if side.retries:
        yield f"{side.name} asked for patience {side.retries:,} times (429, 503): a lower --rate spares it"


def _largest_first(result: CandidateResult) -> list[SliceDifference]:
    return sorted(result.slices(), key=lambda each: (not each.is_proven, each.rest - each.value))


def _priced(side: dict[str, Any], prices: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    price, tokens = prices.get(side["name"]), side["tokens"]
    if price is None or not tokens["answers"]:
        return side
    spent = (tokens["input"] * price[0] + tokens["output"] * price[1]) / 1e6
    return side | {"price_per_1000": 1000.0 * spent / tokens["answers"], "price": spent}


def _noise(tally: Tally) -> dict[str, Any]:
    rows = tally.noise.asked
    return {
        "differs": tally.differs.rate,
        "noise": tally.noise.rate if rows else None,
        "candidate_noise": tally.challenger_noise.rate if rows else None,
        "asked_twice": rows,
    }


def _facts(each: Mapping[str, Any], production: Mapping[str, Any]) -> list[str]:
    lines = []
    for row in each["agreement"]:
        noise = "production's noise is not known"
        if row["noise"] is not None:
            both = f"{percent(row['noise'])} and {percent(row['candidate_noise'])}"
            noise = f"production and candidate differ from themselves in {both}"
        beyond = f"beyond noise in {share_text(**row['beyond_noise'])}; " if row["is_noise_known"] else ""
        differs = f"differs in {percent(row['differs'])} of {row['records']:,}"
        lines.append(f"{row['measure']}: {row['verdict']}; {differs}, {beyond}{noise}")
    for row in each["slices"][:EXAMPLES]:
        where = share_text(row["value"], row["low"], row["high"])
        more = " (proven more than elsewhere)" if row["is_proven"] else ""
        name = f"{row['name']}, {row['measure']}"
        lines.append(f"{name}: {where} of {row['rows']:,}, elsewhere {percent(row['rest'])}{more}")
    for kind, row in each["outcomes"].items():
        if row["only_candidate"] or row["only_production"]:
            both = f"{row['only_candidate']:,} and {row['only_production']:,}"
            lines.append(f"{kind} by the candidate or production alone: {both} of {row['rows']:,}")
    if texts := each["texts"]:
        proof = "proven" if texts["is_proven"] else "not proven"
        distance = f"energy distance {texts['distance']:.2g}"
        lines.append(f"texts as a whole: {distance}, {proof} by {texts['records']:,} pairs")
    if each["judge"]:
        judge = each["judge"]
        bounds = f"{judge['value']:+.2f} ({judge['low']:+.2f} to {judge['high']:+.2f})"
        preferred = (
            f"{bounds}, corrected by {judge['labels']:,} labels"
            if judge["labels"]
            else "no label corrects it"
        )
        lines.append(f"judge (1 candidate better, -1 production): {judge['records']:,} pairs, {preferred}")
    lines.append(f"asked {each['asked']:,} questions, production {production['asked']:,}")
    lines.append(f"latency p50 / p99: {_latency(each)}, production {_latency(production)}")
    if "price_per_1000" in each:
        other = f", production {production['price_per_1000']:.4g}" if "price_per_1000" in production else ""
        lines.append(f"price of 1,000 answers: {each['price_per_1000']:.4g}{other}")
    return lines + [f"{why['count']:,} unanswered: {why['reason']}" for why in each["why"]]


def _latency(side: Mapping[str, Any]) -> str:
    found = side["latency_s"]
    if found["p50"] is not None:
        return f"{1000 * found['p50']:.0f} / {1000 * found['p99']:.0f} ms"
    if side["fates"].get("answered", 0) > WARM_UP:
        return "not measured, as it was not asked one by one"
    return "not measured"


def _funnel_line(found: Mapping[str, Any]) -> str:
    counts = found["records"]
    listed = ", ".join(f"{value:,} {name}" for name, value in counts.items() if isinstance(value, int))
    return f"Records: {listed}; {found['seconds']:g} s; {ENDINGS[found['ended']]}."


def _markdown_row(each: Mapping[str, Any]) -> str:
    first = each["agreement"][0]["beyond_noise"] if each["agreement"] else None
    beyond = "-" if first is None else share_text(**first)
    missing = sum(count for fate, count in each["fates"].items() if fate not in ("answered", "unasked"))
    p50, p99 = each["latency_s"]["p50"], each["latency_s"]["p99"]
    times = ["-" if t is None else f"{1000 * t:.0f} ms" for t in (p50, p99)]
    return f"| {_cell(each['name'])} | {each['verdict']} | {beyond} | {missing:,} | {times[0]} | {times[1]} |"


def _markdown_examples(each: Mapping[str, Any]) -> str:
    head = [
        f"<details><summary>Examples: {_cell(each['name'])}</summary>",
        "",
        "| question | production | candidate |",
        "|---|---|---|",
    ]
    cells = [
        (question_of(one), short(one["production"]), short(one["candidate"])) for one in each["examples"]
    ]
    rows = [f"| {' | '.join(map(_cell, row))} |" for row in cells]
    return "\n".join([*head, *rows, "", "</details>"])


def _cell(text: str) -> str:
    """Escape a text for a Markdown table, so that records can insert neither markup, links nor mentions."""
    return text.translate(_PLAIN).replace("@", "@\u200b")


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]
