from collections.abc import Sequence

from sqlalchemy import Connection

from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import was_champion
from outrider.dataops.models.registry import Model
from outrider.dataops.outbox import WebhookTarget
from outrider.errors import GateRefused

from .verdicts import VerdictRow, newest_verdict

ASKED_FOR = "asked for"


def promote_for(
    connection: Connection,
    model: str,
    version: str,
    *,
    by: str,
    reason: str,
    is_forced: bool,
    now_us: int,
    targets: Sequence[WebhookTarget] = (),
) -> Model:
    verdict = newest_verdict(connection, model, version)
    fault = _fault(connection, model, version, verdict)
    if fault and not is_forced:
        raise GateRefused(f"{fault}; force = true with a reason promotes it anyway")
    if fault and not reason.strip():
        raise GateRefused(f"{fault}; reason: a promotion past the gate says why")
    return models.promote(
        connection,
        model,
        version,
        now_us=now_us,
        reason=reason.strip() or ASKED_FOR,
        by=by,
        verdict=verdict.id if verdict else None,
        is_override=bool(fault),
        targets=targets,
    )


def _fault(connection: Connection, model: str, version: str, verdict: VerdictRow | None) -> str | None:
    """Reason against a promotion without force."""
    found = models.get(connection, model, version)
    if found.status == "champion" or was_champion(connection, model, version):
        return None
    if verdict is None:
        return f"{found.id} was not judged by the promotion gate yet"
    if verdict.evidence["passed"]:
        champion = models.champion(connection, model)
        if champion is None or champion.version == verdict.champion:
            return None
        return (
            f"the promotion gate passed {found.id} against version {verdict.champion}, and "
            f"{champion.version} is champion now: `outrider retrain {model} --candidate {version}` asks again"
        )
    word = "has not decided on" if verdict.evidence["undecided"] else "refused"
    return f"the promotion gate {word} {found.id}: {verdict.reasons[0]}"
