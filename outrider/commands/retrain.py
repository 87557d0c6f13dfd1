"""``outrider retrain``: fine-tune a challenger and run the gate."""

from typing import Annotated, Any

import typer

from outrider.dataops.state.job_states import OPEN
from outrider.errors import ServerError

from .api import Api, connect
from .jobs import follow_job
from .output import Config, Json, as_json, printable


def retrain(
    model: Annotated[
        str | None, typer.Argument(help="Name of the model; that of the job with --repeat.")
    ] = None,
    candidate: Annotated[
        str | None, typer.Option(help="Run the gate on this challenger, without training.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Dataset version that the candidate was trained on, name@number.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Job of retrain.requested that the candidate answers.")
    ] = None,
    repeat: Annotated[
        str | None, typer.Option(help="Train again as this job did, and compare the digests.")
    ] = None,
    from_scratch: Annotated[bool, typer.Option(help="Start from fresh weights, not the champion's.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Validate all rows of the dataset, not the new ones alone.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Instead of retrain.epochs.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Instead of retrain.learning_rate.")] = None,
    replay_ratio: Annotated[float | None, typer.Option(help="Instead of retrain.replay_ratio.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of retrain.seed.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the verdict.")] = True,
    timeout_s: Annotated[float, typer.Option(help="How long to wait.")] = 600.0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Fine-tune a challenger and run the promotion gate.

    Exit code 1 when the challenger is refused or fails, or where a repetition gives other weights.
    """
    if model is None and repeat is None:
        raise typer.BadParameter("the name of a model, or --repeat with a job, expected")
    api = connect(config)
    if model is None:
        model = str(api.get(f"/v1/retrains/{repeat}")["model"])
    body = {
        "model": model,
        "candidate": candidate,
        "dataset": dataset,
        "job": job,
        "repeat": repeat,
        "from_scratch": from_scratch,
        "full": full,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "replay_ratio": replay_ratio,
        "seed": seed,
    }
    found = api.post("/v1/retrains", body)
    if wait:
        found = _wait(api, found, timeout_s, quiet=json)
    if json:
        as_json(found)
    else:
        _show(found)
    if found["status"] in ("refused", "failed", "cancelled"):
        raise typer.Exit(1)
    if found["status"] == "undecided":
        raise typer.Exit(6)


def _wait(api: Api, job: dict[str, Any], timeout_s: float, *, quiet: bool) -> dict[str, Any]:
    found = follow_job(api, job, quiet=quiet, timeout_s=timeout_s)
    if found["status"] in OPEN:
        raise ServerError(f"{job['id']} is still {found['status']} after {timeout_s:g} s")
    return found


def _show(job: dict[str, Any]) -> None:
    result = job["result"]
    typer.echo(f"{job['id']}: {job['status']}")
    if "candidate" in result:
        words = ("promoted", "promoted"), ("passed", "waiting for a person"), ("undecided", "undecided")
        refused = "refused" if "passed" in result else job["status"]
        outcome = next((word for name, word in words if result.get(name)), refused)
        typer.echo(f"version {result['candidate']} of {job['model']}: {outcome}")
    if "equal" in result:
        which = "the same" if result["equal"] else "other"
        typer.echo(f"{which} weights as {result['repeat_of']}: {result['digest'][:12]}")
    for reason in result.get("reasons", []):
        typer.echo(f"  {printable(reason, keeps_lines=True)}")
    if "error" in result:
        typer.echo(f"  {printable(result['error'], keeps_lines=True)}")
    for line in result.get("log", ()):
        typer.echo(f"  | {printable(line)}")
