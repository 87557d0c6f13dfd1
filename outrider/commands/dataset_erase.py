"""``outrider dataset erase``: remove a person, or single records, from all stores."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.errors import ServerError

from .api import Api, connect
from .output import Config, Json, as_json, table

if TYPE_CHECKING:
    from outrider.dataops.erasure.erasing import Place
    from outrider.dataops.erasure.target import ErasureTarget
    from outrider.monitor.settings.config import Settings

COLUMNS = {"what": "what", "count": "count"}
WHO = "command"
POLL_S, MOST_S = 0.5, 3600.0
Names = Annotated[
    list[str] | None, typer.Option("--subject", help="Entity whose records go; may be repeated.")
]
Ids = Annotated[list[str] | None, typer.Option("--record", help="Id of a record that goes; may be repeated.")]


def erase(
    subjects: Names = None,
    records: Ids = None,
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Only count what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Erase a person's records, or single ones, from every place.

    From journal, database, dataset versions and files. Exit code 1, and nothing changes, when there is no
    trace of it.
    """
    from outrider.dataops.comparisons import FOLDER as COMPARISONS
    from outrider.dataops.erasure.target import ErasureTarget
    from outrider.monitor.process.folder_lock import AlreadyRunning, take_folder
    from outrider.monitor.settings.config import accepted_settings, find_config

    try:
        wanted = ErasureTarget(tuple(subjects or ()), tuple(records or ()), model)
    except ValueError as error:
        raise typer.BadParameter(f"--subject or --record: {error}") from error
    settings = accepted_settings(find_config(config))
    if not (settings.journal_path.exists() or (settings.data_folder / COMPARISONS).is_dir()):
        raise typer.BadParameter(f"{settings.data_folder}: no journal there, so nothing is stored")
    try:
        lock = take_folder(settings.data_folder)
    except AlreadyRunning:
        _erase_there(_service(config), wanted, dry_run=dry_run, yes=yes, json=json)
        return
    try:
        _erase_here(settings, wanted, dry_run=dry_run, yes=yes, json=json)
    finally:
        os.close(lock)


def _service(config: Path | None) -> Api:
    """Client of the running service; the error mentions that another command may hold the data folder."""
    try:
        return connect(config)
    except ServerError as error:
        raise ServerError(
            f"another process uses the data folder: if it is a command, such as another erasure, run this "
            f"again once it has ended; if it is a service: {error}"
        ) from None


def _erase_there(api: Api, wanted: "ErasureTarget", *, dry_run: bool, yes: bool, json: bool) -> None:
    """Erase through the running service, and wait until it has restarted."""
    body = {"subjects": list(wanted.subjects), "records": list(wanted.records), "model": wanted.model}
    if dry_run or not yes:
        counted = api.post("/v1/erasures", {**body, "dry_run": True})
        show({"would_go": counted["would_go"]}, json=json and dry_run)
        if dry_run:
            return
        typer.confirm("Erase this for good?", abort=True)
    id_ = api.post("/v1/erasures", body)["erasure"]
    deadline = time.monotonic() + MOST_S
    while (found := _state(api, id_)) is None or found["state"] == "pending":
        if time.monotonic() > deadline:
            raise ServerError(f"still pending: `GET /v1/erasures/{id_}` says when it is done")
        time.sleep(POLL_S)
    if found["problem"]:
        raise ServerError(f"not all has gone, the next start tries again: {found['problem']}")
    show(found, json=json)


def _state(api: Api, id_: str) -> dict[str, Any] | None:
    """State of an erasure; None while the service restarts."""
    try:
        found: dict[str, Any] = api.get(f"/v1/erasures/{id_}")
    except ServerError:
        return None
    return found


def _erase_here(
    settings: "Settings", wanted: "ErasureTarget", *, dry_run: bool, yes: bool, json: bool
) -> None:
    from outrider.dataops.access.private_files import keep_files_private
    from outrider.dataops.erasure.erasing import complete, preview
    from outrider.dataops.erasure.pending import ask
    from outrider.dataops.journal.journal import SqliteJournal
    from outrider.dataops.state.database import now_us
    from outrider.monitor.migrate import migrate
    from outrider.monitor.settings.erasure_place import place_of

    keep_files_private()
    migrate(settings)
    if not settings.journal_path.exists():  # a comparison that was kept, and never served
        SqliteJournal(settings.journal_path).close()
    place = place_of(settings)
    counts = preview(place, wanted)
    if dry_run:
        show({"would_go": counts}, json=json)
        return
    if not yes:
        show({"would_go": counts}, json=False)
        typer.confirm("Erase this for good?", abort=True)
    id_ = ask(settings.data_folder, wanted, who=WHO, now_us=now_us())
    _note_write(settings.data_folder, id_)
    complete(place)
    show(result_of(place, id_), json=json)


def result_of(place: "Place", id_: str) -> dict[str, Any]:
    from outrider.dataops.erasure.pending import done

    engine = place.open()
    try:
        with engine.connect() as connection:
            one = next(one for one in done(connection) if one.id == id_)
    finally:
        engine.dispose()
    return {"erasure": one.id, **one.found}


def show(found: dict[str, Any], *, json: bool) -> None:
    if json:
        as_json(found)
        return
    counts = found.get("would_go", found.get("counts", {}))
    rows = [{"what": name.replace("_", " "), "count": count} for name, count in counts.items()]
    table(rows, COLUMNS, empty="nothing is left of it")
    for backup in found.get("backups", ()):
        typer.echo(f"backup: {backup}")
    if models := found.get("models"):
        typer.echo(f"trained on its rows: {', '.join(models)}; retrain them, or take them out of use")
    if blocks := found.get("unreadable_blocks"):
        typer.echo(f"damaged blocks, whose records are unknown: {', '.join(map(str, blocks))}")


def _note_write(folder: Path, id_: str) -> None:
    """Log the erasure as a change, without the erased ids."""
    from outrider.dataops.access.store import AccessStore, WriteRow
    from outrider.dataops.state.database import now_us

    store = AccessStore(folder / "state.db")
    try:
        store.note_write(
            WriteRow(0, now_us(), WHO, "outrider dataset erase", f"/v1/erasures/{id_}", 200, "", "")
        )
    finally:
        store.close()
