"""Rule of alarms from the configuration."""

from outrider.dataops.alarms.rate_alarms import AlarmRule

from .config import Settings


def alarm_rule(settings: Settings) -> AlarmRule:
    """Guarantee of alarms, for worker and read models."""
    flags = settings.flags
    return AlarmRule(
        flags.alpha,
        flags.horizon_s,
        flags.baseline_s,
        flags.odds,
        flags.quiet_s,
        flags.loss_points,
        flags.drift_window_s,
        flags.drift_reference,
    )
