"""Retrainings and verdicts as stories: trigger, dataset, training, evidence, verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from outrider.dataops.improvement import jobs, verdicts
from outrider.dataops.improvement.job_progress import progress_share, progress_text
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.verdicts import VerdictRow
from outrider.dataops.models.champion_history import ChangeRow, list_changes
from outrider.dataops.state.job_states import OPEN

_REFUSED_BEFORE = "failed: "
_OPEN_BEFORE = "undecided: "
_LETTERS = 240


@dataclass(frozen=True, slots=True)
class StoryStep:
    name: str
    text: str
    dataset: tuple[str, int] | None = None
    """Dataset version to link to."""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """Job with its verdict; one of both may be missing."""

    at_us: int
    job: JobRow | None
    verdict: VerdictRow | None

    @property
    def outcome(self) -> str:
        if self.verdict is not None:
            return self.verdict.outcome
        return "" if self.job is None else self.job.status

    @property
    def sentence(self) -> str:
        if self.verdict is not None:
            return _told_verdict(self.verdict)
        assert self.job is not None
        return _told_job(self.job)

    @property
    def progress(self) -> str:
        job = self.job
        return "" if job is None else progress_text(job.status, job.stage, job.result)

    @property
    def share(self) -> float | None:
        return progress_share(self.job.result) if self.job is not None and self.progress else None

    @property
    def action(self) -> str:
        """Change that a person may ask for: ``cancel``, ``retry`` or none."""
        status = "" if self.job is None else self.job.status
        return "cancel" if status in OPEN else "retry" if status in ("failed", "cancelled") else ""

    @property
    def steps(self) -> list[StoryStep]:
        found = [] if self.job is None else _steps_of_job(self.job)
        return found if self.verdict is None else [*found, *_steps_of_verdict(self.verdict)]


def list_stories(
    engine: Engine, model: str, *, limit: int = 10, before_us: int | None = None
) -> tuple[list[Story], int | None]:
    """Newest stories, and the time at which the next page begins."""
    with engine.connect() as connection:
        made = jobs.recent(connection, model=model, limit=limit + 1, before_us=before_us)
        judged = verdicts.list_verdicts(connection, model, limit=limit + 1, before_us=before_us)
        of_job = verdicts.of_jobs(connection, [job.id for job in made])
    told = [Story(job.created_us, job, of_job.get(job.id)) for job in made]
    told += [Story(one.created_us, None, one) for one in judged if "job" not in one.evidence]
    told.sort(key=lambda story: story.at_us, reverse=True)
    return told[:limit], told[limit - 1].at_us if len(told) > limit else None


@dataclass(frozen=True, slots=True)
class Reign:
    """Time of a champion, as shares of the time shown."""

    change: ChangeRow
    left: float
    width: float


def champion_line(engine: Engine, model: str, *, now_us: int, limit: int = 20) -> list[Reign]:
    with engine.connect() as connection:
        found = list_changes(connection, model, limit=limit)[::-1]
    if not found:
        return []
    since = found[0].at_us
    whole = max(now_us - since, 1)
    ends = [*(row.at_us for row in found[1:]), now_us]
    return [
        Reign(row, (row.at_us - since) / whole, max(until - row.at_us, 0) / whole)
        for row, until in zip(found, ends, strict=True)
    ]


def _told_verdict(found: VerdictRow) -> str:
    who = f"Version {found.candidate}"
    passed = sum(reason.startswith("passed: ") for reason in found.reasons)
    checks = f"{passed} {'check' if passed == 1 else 'checks'}"
    if found.promoted:
        return f"{who} became champion in place of {found.champion}: it passed {checks}."
    if found.outcome == "refused":
        failed = next((text for text in found.reasons if text.startswith(_REFUSED_BEFORE)), "")
        return f"{who} was refused: {_brief(failed.removeprefix(_REFUSED_BEFORE))}."
    if found.outcome == "undecided":
        left = next((text for text in found.reasons if text.startswith(_OPEN_BEFORE)), "")
        return f"{who} is undecided against {found.champion}: {_brief(left.removeprefix(_OPEN_BEFORE))}."
    if found.outcome == "waiting for a person":
        return f"{who} passed {checks} and waits for a person."
    return f"{who} passed {checks}."


def _told_job(job: JobRow) -> str:
    what = "The retraining" if job.kind == "retrain" else "The dataset version"
    if job.status == "failed":
        return f"{what} failed{f' in stage {job.stage}' if job.stage else ''}: {_brief(_error(job.result))}."
    if job.status == "queued":
        return f"{what} waits in the queue."
    if job.status == "waiting":
        return f"{what} waits for {job.result['waits']['for']}."
    if job.status == "cancelled":
        return f"{what} was {_brief(_error(job.result))}."
    if job.status == "running":
        return f"{what} is at stage {job.stage or 'start'}."
    if job.status == "refused":
        return f"{what} was refused: {_brief(_error(job.result))}."
    if job.params.get("trigger") == jobs.ROLLING:
        return f"All versions were compared: {_brief(_error(job.result))}."
    if job.kind == "dataset" and "number" in job.result:
        return f"{job.result['dataset']}@{job.result['number']} was made: {job.result['rows']:,} rows."
    return f"{what} ended: there was nothing new."


def _error(result: Mapping[str, Any]) -> str:
    return str(result.get("error") or next(iter(result.get("reasons", ())), "no reason was kept"))


def _brief(text: str) -> str:
    line = text.partition("\n")[0].partition("; ")[0].removesuffix(". Failing:").rstrip(".")
    return line if len(line) <= _LETTERS else f"{line[: _LETTERS - 1].rstrip()} …"


def _steps_of_job(job: JobRow) -> list[StoryStep]:
    params, result = job.params, job.result
    seconds: Mapping[str, float] = result.get("seconds", {})
    found = [StoryStep("Trigger", _trigger(params))]
    dataset = _dataset(result)
    if dataset is not None:
        rows = result.get("rows", (result.get("labels") or {}).get("rows"))
        text = "" if rows is None else f"{rows:,} {'rows' if job.kind == 'dataset' else 'rows added'}"
        found.append(StoryStep("Dataset", text, dataset, seconds.get("dataset")))
    if job.kind == "retrain" and "candidate" in result and params.get("trigger") != jobs.ROLLING:
        found.append(StoryStep("Training", _training(params, result), None, seconds.get("train")))
    return found


def _trigger(params: Mapping[str, Any]) -> str:
    if "labelled_flags" in params:
        return f"{params['labelled_flags']:,} labelled flagged records"
    if "candidate" in params:
        return f"version {params['candidate']} put before the gate"
    if "source" in params:
        return f"import of {params['source']}"
    word = params.get("trigger")
    if word is not None and "why" in params:
        return f"{str(word).replace('_', ' ')}: {params['why']}"
    return "asked for by a person" if word is None else str(word).replace("_", " ")


def _dataset(result: Mapping[str, Any]) -> tuple[str, int] | None:
    if "number" in result:
        return str(result["dataset"]), int(result["number"])
    name, _, number = str(result.get("dataset") or "").rpartition("@")
    return (name, int(number)) if number.isdecimal() else None


def _training(params: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if "candidate" in params:
        return f"version {result['candidate']}, made elsewhere"
    how = "from scratch" if params.get("from_scratch") else f"from version {result.get('champion', '?')}"
    count = result.get("epoch")
    epochs = "" if count is None else f", {count} {'epoch' if count == 1 else 'epochs'}"
    return f"version {result['candidate']} {how}{epochs}"


def _steps_of_verdict(found: VerdictRow) -> list[StoryStep]:
    evidence = found.evidence
    parts = []
    if suites := evidence["suites"]:
        parts.append(f"{len(suites)} behavioral tests")
    judged = [pair for pair in (evidence["held_out"], evidence["fresh"]) if pair and pair["excess"]["rows"]]
    parts += [f"{pair['excess']['rows']:,} labelled rows of {pair['dataset']}" for pair in judged]
    if (rolling := evidence["rolling"]) and rolling["standings"]:
        parts.append(f"{len(rolling['standings'])} versions on the latest labelled rows")
    if (shadow := evidence["shadow"]) and shadow["rows"]:
        parts.append(f"{shadow['rows']:,} live records")
    return [
        StoryStep("Evidence", ", ".join(parts) or "none"),
        StoryStep("Verdict", f"{found.outcome}, against version {found.champion}"),
    ]
