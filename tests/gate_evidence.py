"""Evidence of verdicts, as the trainer keeps it."""

import dataclasses
from typing import Any

from outrider.dataops.improvement import gate


def kept_evidence(
    evidence: gate.Evidence | None = None, policy: gate.Policy | None = None, **more: Any
) -> dict[str, Any]:
    """Refused evidence unless ``more`` says otherwise."""
    kept = dataclasses.asdict(evidence or gate.Evidence()) | {"passed": False, "undecided": False}
    return kept | {"policy": dataclasses.asdict(policy or gate.Policy())} | more
