"""Alert rules of Prometheus."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Alert:
    """Alert rule; texts may use Prometheus' templates."""

    name: str
    expr: str
    summary: str
    description: str
    hold: str = "0m"
    """How long the expression must hold."""
    severity: Literal["warning", "critical"] = "warning"


def _missed(window: str) -> str:
    """Share of the records of a model that were not judged within its objective."""
    missed = f'sum by (model) (rate(outrider_slo_records_total{{outcome!="in_time"}}[{window}]))'
    return f"{missed} / sum by (model) (rate(outrider_slo_records_total[{window}]))"


ALERTS: tuple[Alert, ...] = (
    Alert(
        "OutriderAbsent",
        "absent(outrider_build_info)",
        "Prometheus gets nothing from Outrider",
        "Is `outrider serve` running, and does the scrape job reach /metrics?",
        hold="2m",
        severity="critical",
    ),
    Alert(
        "OutriderProcessDown",
        "outrider_process_up == 0",
        "Outrider process {{ $labels.process }} does not report",
        "The supervisor restarts it; if this stays, look into its log.",
        hold="30s",
        severity="critical",
    ),
    Alert(
        "OutriderBacklogOld",
        'outrider_lag_seconds{role="champion"} > 60 '
        'unless on (model) max by (model) (outrider_paused{what="shadow"}) == 1',
        "Verdicts on {{ $labels.model }} are {{ $value | humanizeDuration }} behind",
        "The worker judges slower than records arrive, or stands still.",
        hold="2m",
    ),
    Alert(
        "OutriderConfigRefused",
        "max(outrider_config_refused) == 1",
        "A changed configuration was refused",
        "The last good one goes on; the page and `outrider doctor` say why.",
        hold="5m",
    ),
    Alert(
        "OutriderPaused",
        "max by (model, what) (outrider_paused) == 1",
        "{{ $labels.what }} of {{ $labels.model }} has been paused for hours",
        "What waits is never expired; `outrider resume` goes on.",
        hold="4h",
    ),
    Alert(
        "OutriderFreshnessBurn",
        f"{_missed('1h')} > 0.144 and {_missed('5m')} > 0.144",
        "{{ $value | humanizePercentage }} of the records of {{ $labels.model }} miss their objective",
        "If 1 % may miss it, an hour like this spends 2 % of what 30 days allow. The worker is slower than "
        "the traffic, so records are judged late, skipped or sampled out: docs/latency.md.",
    ),
    Alert(
        "OutriderJournalFullSoon",
        "outrider_journal_bytes > 0.9 * outrider_journal_limit_bytes "
        "or predict_linear(outrider_journal_bytes[1h], 14400) > outrider_journal_limit_bytes "
        "or predict_linear(outrider_disk_free_bytes[1h], 14400) < 0",
        "The journal is full, or will be within 4 hours",
        "A full journal answers 507 to new records. Raise storage.journal_max_bytes or free disk space.",
        hold="10m",
    ),
    Alert(
        "OutriderAlarm",
        "max by (model, kind, assertion) "
        '(outrider_alarm{kind=~"flags|silence|performance",level="warning"}) == 1',
        "{{ $labels.model }} has changed: {{ $labels.kind }} of {{ $labels.assertion }}",
        "This is proven, with a stated chance of a false alarm. Its incident says since when, where, next to "
        "which event and what to do: /incidents?model={{ $labels.model }}&kind={{ $labels.kind }}"
        "&assertion={{ $labels.assertion }} of the page, `outrider incidents`, docs/alarms.md.",
    ),
    Alert(
        "OutriderIncidentOpen",
        'outrider_incidents_open{level="critical"} > 0',
        "A critical incident of {{ $labels.model }} is open",
        "It has a page that /m/{{ $labels.model }}/alarms leads to: acknowledge, mute or resolve it there.",
        hold="5m",
        severity="critical",
    ),
    Alert(
        "OutriderVersionMismatch",
        "outrider_version_mismatch_ratio > 0.01",
        "{{ $value | humanizePercentage }} of the records of {{ $labels.model }} state another version",
        "Production runs another version than the champion: its incident names them. Roll the champion out, "
        "or promote the version that runs.",
        hold="10m",
    ),
    Alert(
        "OutriderLiveTestFails",
        "outrider_live_test_alarm == 1",
        "{{ $labels.model }} fails live test {{ $labels.test }} more often than tolerated",
        "This is proven however long the test is watched, so it does not go away by itself: look at the "
        "failures on its page, and change the model or the test.",
    ),
    Alert(
        "OutriderLiveEndpointDown",
        "outrider_live_endpoint_up == 0",
        "The endpoint of {{ $labels.model }} does not answer live tests",
        "Its questions are counted as unanswered and nothing waits for it; the worker's log says what came.",
        hold="10m",
    ),
    Alert(
        "OutriderShadowLeftOut",
        "outrider_shadows_left_out > 0",
        "A {{ $labels.role }} of {{ $labels.model }} is disabled",
        "It failed on three units in a row, or held up or ended its engine three times within an hour; the "
        "overview says why. Everything else goes on.",
    ),
    Alert(
        "OutriderAnswersOwed",
        "outrider_owed_records > 0",
        "A {{ $labels.role }} of {{ $labels.model }} does not answer",
        "Its records are not judged as if it had: they wait and it is asked again; the overview says why. "
        "What is older than latency.backfill_s is given up. Everything else goes on.",
        hold="15m",
    ),
    Alert(
        "OutriderAssertionSuspended",
        "outrider_assertion_suspended == 1",
        "Assertion {{ $labels.assertion }} of {{ $labels.model }} is suspended",
        "By a person, or it raised, ran too long or died on three blocks in 5 minutes; its page shows why.",
    ),
    Alert(
        "OutriderRetrainFailed",
        'increase(outrider_retrains_total{status="failed"}[1h]) > 0',
        "A retrain of {{ $labels.model }} failed",
        "The job's error stands on the page under Retrains & gates.",
    ),
    Alert(
        "OutriderWebhookFailing",
        'sum by (instance) (increase(outrider_webhook_deliveries_total{outcome="retry"}[15m])) > 3 '
        "unless on (instance) "
        'sum by (instance) (increase(outrider_webhook_deliveries_total{outcome="delivered"}[15m])) > 0',
        "No webhook gets through",
        "Deliveries are retried with backoff; look at the receiver.",
        hold="5m",
    ),
    Alert(
        "OutriderRecordsRefused",
        "sum by (instance) (rate(outrider_records_rejected_total[10m])) "
        "> 0.05 * sum by (instance) (rate(outrider_records_accepted_total[10m])) "
        "and on (instance) sum by (instance) (increase(outrider_records_rejected_total[10m])) >= 10",
        "More than one record in twenty is refused at intake",
        "The panel Records refused shows the reasons; the responses name field and record.",
        hold="5m",
    ),
)
