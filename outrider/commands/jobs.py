"""``outrider jobs``: list, follow, cancel and retry jobs of the trainer."""

import sys
import time
from typing import Annotated, Any

import typer

from outrider.dataops.improvement.job_progress import progress_text
from outrider.dataops.state.job_states import OPEN

from .api import Api, connect
from .default_group import listing
from .output import Config, Json, ModelArgument, as_json, printable, table

app = listing("List jobs of the trainer; show, cancel and retry one.")
POLL_S = 0.5
TELL_S = 10.0
"""Seconds between progress lines if stderr is not a terminal."""
COLUMNS = {
    "id": "job",
    "model": "model",
    "kind": "kind",
    "status": "status",
    "stage": "stage",
    "progress": "progress",
    "created": "made",
}
Job = Annotated[str, typer.Argument(help="Id of the job.")]


@app.command("list")
def list_jobs(
    model: ModelArgument = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only jobs that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 20,
    config: Config = None,
    json: Json = False,
) -> None:
    """List jobs, newest first."""
    state = "open" if is_open else "all"
    found = connect(config).get("/v1/jobs", model=model, state=state, limit=limit)
    if json:
        as_json(found)
        return
    rows = [job | {"progress": _progress(job)} for job in found["jobs"]]
    table(rows, COLUMNS, empty="no open job" if is_open else "no job yet")


@app.command()
def show(
    job: Job,
    follow: Annotated[bool, typer.Option(help="Go on until it has ended.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a job: progress, or error and last lines of log."""
    api = connect(config)
    found = api.get(f"/v1/jobs/{job}")
    if follow:
        found = follow_job(api, found, quiet=json)
    _tell(found, json=json)


@app.command()
def cancel(job: Job, config: Config = None, json: Json = False) -> None:
    """Cancel an open job; its candidate is retired."""
    _tell(connect(config).post(f"/v1/jobs/{job}/cancel", {}), json=json)


@app.command()
def retry(job: Job, config: Config = None, json: Json = False) -> None:
    """Retry a failed or cancelled job, from its last finished stage on."""
    _tell(connect(config).post(f"/v1/jobs/{job}/retry", {}), json=json)


def follow_job(
    api: Api, job: dict[str, Any], *, quiet: bool = False, timeout_s: float | None = None
) -> dict[str, Any]:
    """Wait for a job to end, with progress on stderr. Returns the unfinished job after ``timeout_s``."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    is_terminal, stage, printed_at = sys.stderr.isatty(), None, 0.0
    while job["status"] in OPEN and (deadline is None or time.monotonic() < deadline):
        now = job["stage"] or job["status"]
        is_new = now != stage
        if not quiet and (is_new or is_terminal or time.monotonic() - printed_at >= TELL_S):
            line = printable(" ".join(filter(None, (f"{job['id']}: {now}", _progress(job)))))
            before = "\n" if is_terminal and is_new and stage is not None else ""
            typer.echo(f"{before}\r{line}\x1b[K" if is_terminal else line, err=True, nl=not is_terminal)
            stage, printed_at = now, time.monotonic()
        time.sleep(POLL_S)
        job = api.get(f"/v1/jobs/{job['id']}")
    if is_terminal and stage is not None:
        typer.echo(err=True)
    return job


def _progress(job: dict[str, Any]) -> str:
    return progress_text(job["status"], job["stage"], job["result"])


def _tell(job: dict[str, Any], *, json: bool) -> None:
    if json:
        as_json(job)
        return
    progress = _progress(job)
    typer.echo(f"{job['id']}: {job['kind']} of {job['model']}, {job['status']}")
    typer.echo(f"  made {job['created']}, attempt {max(job['attempts'], 1)}, stage {job['stage'] or '-'}")
    if progress:
        typer.echo(f"  {printable(progress)}")
    for name in ("dataset", "candidate", "error"):
        if job["result"].get(name):
            typer.echo(f"  {name}: {printable(str(job['result'][name]), keeps_lines=True)}")
    if account := job["result"].get("labels"):
        from outrider.dataops.datasets.label_account import account_words

        for line in account_words(account):
            typer.echo(f"  {printable(line)}")
    for line in job["result"].get("log", ()):
        typer.echo(f"  | {printable(line)}")
