"""Promotions by people, and random events of gate and people."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from benchmarks.improvement.promotions import broken_off, faults, fresh_folder, killed, opened
from outrider.dataops.improvement.promotion import promote_for
from outrider.dataops.improvement.verdicts import keep_verdict
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import GateRefused
from tests.gate_evidence import kept_evidence
from tests.model_sources import FUNCTION


@pytest.mark.costly("drawn histories of promotions, each on a database")
def test_no_champion_without_verdict_or_named_override() -> None:
    wrong, broken = broken_off(events=1_500)
    assert (wrong, broken > 10) == (0, True)
    assert killed(kills=2) == 0


def test_a_promotion_without_either_is_found() -> None:
    with fresh_folder() as folder:
        made = opened(folder, seed=0)
        with write(made.engine) as connection:
            made.register(connection)
            models.promote(connection, "m", "1", now_us=5, reason="", by="gate")
        (found,) = faults(made.engine)
        assert "version='1'" in found
        made.engine.dispose()


def test_a_pass_against_another_champion_does_not_count(engine: Engine, tmp_path: Path) -> None:
    with write(engine) as connection:
        models.register_initial(
            connection, LocalObjects(tmp_path), model="m", version="1", content=b"", is_weights=True,
            now_us=1, source=FUNCTION,
        )  # fmt: skip
        for version in ("2", "3"):
            models.register(
                connection, model="m", version=version, status="challenger", digest="", weights=None,
                now_us=2, source=FUNCTION,
            )  # fmt: skip
            keep_verdict(
                connection, model="m", candidate=version, champion="1", promoted=False, reasons=["all"],
                evidence=kept_evidence(passed=True), now_us=3,
            )  # fmt: skip
        asked = {"by": "ann", "reason": "", "is_forced": False, "now_us": 4}
        promote_for(connection, "m", "2", **asked)  # type: ignore[arg-type]
        with pytest.raises(GateRefused, match=r"against version 1, and 2 is champion now: .*--candidate 3"):
            promote_for(connection, "m", "3", **asked)  # type: ignore[arg-type]
