"""All metrics, the source of exposition, documentation, panels and rules.

Rules: prefix ``outrider_``, base units, ``_total`` counters. Labels are bounded: ``enums`` names the values a
label may take (counters and histograms of them exist at 0 from the start; a gauge exists once the process
that knows it has set it), every other label is open and guarded by ``limit``.
No label value ever comes from the content of a record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from outrider.dataops.state.job_states import ENDED
from outrider.dataops.triggers.decision import TRIGGER_OUTCOMES, TRIGGERS

Kind = Literal["counter", "gauge", "histogram"]

OTHER = "__other__"

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_DELAY = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_AGE = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
_JOB = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

_ROLE = ("champion", "challenger")
_LEVEL = ("info", "warning", "critical")
_ALARM = (
    "flags",
    "silence",
    "live_test",
    "event_time",
    "clock",
    "version_mismatch",
    "version_retired",
    "drift",
    "performance",
)


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Metric family.

    Parameters
    ----------
    name
        Full name, with ``_total`` for counters.
    unit
        What one unit of the value is, in words or as base unit.
    labels
        Label names, in order.
    enums
        Label name to the values it may take; labels not named here are open.
    buckets
        Upper bounds of a histogram, without infinity.
    limit
        Most values an open label may take; the rest folds into ``__other__``.
    group
        Heading in the documentation.
    process
        The only one that counts it; empty for all of them.
    is_at_zero
        Series of known label values exist from the start: a rate needs one. Left out where these are many,
        and no rule asks for the first count.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    group: str
    labels: tuple[str, ...] = ()
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    buckets: tuple[float, ...] = ()
    limit: int = 100
    process: str = ""
    is_at_zero: bool = True

    @property
    def open_labels(self) -> tuple[str, ...]:
        return tuple(label for label in self.labels if label not in self.enums)

    @property
    def family(self) -> str:
        return self.name.removesuffix("_total")

    @property
    def sample_names(self) -> tuple[str, ...]:
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return (self.name,)


def _spec(
    group: str,
    kind: Kind,
    name: str,
    unit: str,
    text: str,
    *,
    labels: tuple[str, ...] = (),
    enums: Mapping[str, tuple[str, ...]] | None = None,
    buckets: tuple[float, ...] = (),
    process: str | None = None,
    is_at_zero: bool = True,
) -> MetricSpec:
    known = {"role": _ROLE, "level": _LEVEL, **(enums or {})}
    chosen = MappingProxyType({label: known[label] for label in labels if label in known})
    own = _PROCESS_OF[group] if process is None else process
    return MetricSpec(
        name, kind, text, unit, group, labels, chosen, buckets, process=own, is_at_zero=is_at_zero
    )


_INTAKE, _WORKER, _ENGINE, _ASSERT = "Intake", "Worker", "Shadow engine", "Assertions"
_LOOP, _PROC = "Improvement loop", "Processes"
_PROCESS_OF = {
    _INTAKE: "intake", _WORKER: "worker", _ENGINE: "worker", _ASSERT: "worker", _LOOP: "trainer", _PROC: "",
}  # fmt: skip

CATALOGUE: tuple[MetricSpec, ...] = (
    # --- intake ---
    _spec(
        _INTAKE, "counter", "outrider_records_accepted_total", "records",
        "Records acknowledged: they are on disk.", labels=("model",),
    ),
    _spec(
        _INTAKE, "counter", "outrider_records_rejected_total", "records",
        "Records refused at intake.", labels=("reason",),
        enums={
            "reason": (
                "malformed", "schema", "unknown_model", "too_large", "busy", "quota", "disk_full", "erased",
            )
        },
    ),
    _spec(
        _INTAKE, "counter", "outrider_labels_accepted_total", "labels",
        "Labels acknowledged: they are on disk.", labels=("model",),
    ),
    _spec(
        _INTAKE, "counter", "outrider_responses_total", "responses",
        "Responses of the intake routes.", labels=("route", "status"),
        enums={
            "route": ("records", "labels", "cloudevents", "infer", "chat", "traces", "logs"),
            "status": ("2xx", "4xx", "5xx"),
        },
    ),
    _spec(
        _INTAKE, "counter", "outrider_clock_steps_total", "steps",
        "Steps of the machine's clock by more than a minute; the journal notes each.",
        labels=("direction",), enums={"direction": ("forward", "back")},
    ),
    _spec(
        _INTAKE, "counter", "outrider_halves_total", "halves",
        "Sides of records, by outcome: joined, partial (given up), late, repeated, unfit (columns of "
        "a pair differ), unreadable.",
        labels=("model", "outcome"),
        enums={"outcome": ("joined", "partial", "late", "repeated", "unfit", "unreadable")},
    ),
    _spec(
        _INTAKE, "counter", "outrider_otlp_items_total", "spans and log records",
        "Spans and log records of OpenTelemetry, by outcome.", labels=("signal", "outcome"),
        enums={
            "signal": ("traces", "logs"),
            "outcome": ("call", "waiting", "passages", "ignored", "late", "partial", "bare", "rejected"),
        },
    ),
    _spec(
        _INTAKE, "counter", "outrider_redacted_values_total", "values",
        "Values that placeholders took the place of before they were written.", labels=("model", "kind"),
        enums={"kind": ("email", "phone", "card", "iban", "token", "value")},
    ),
    _spec(
        _INTAKE, "counter", "outrider_intake_bytes_total", "bytes",
        "Bytes of request bodies, after decompression.",
    ),
    _spec(
        _INTAKE, "gauge", "outrider_connections", "connections", "Open connections to the server.",
    ),
    _spec(
        _INTAKE, "counter", "outrider_connections_closed_total", "connections",
        "Connections closed for what was sent, how slowly, or for their number.", labels=("cause",),
        enums={"cause": ("header", "framing", "slow", "crowded")},
    ),
    _spec(
        _INTAKE, "histogram", "outrider_commit_seconds", "seconds",
        "Time of one durable group commit of the journal.", buckets=_FAST,
    ),
    _spec(
        _INTAKE, "gauge", "outrider_queue_bytes", "bytes", "Bytes waiting for the journal.",
    ),
    _spec(
        _INTAKE, "gauge", "outrider_journal_bytes", "bytes", "Size of the journal on disk.",
    ),
    _spec(
        _INTAKE, "gauge", "outrider_journal_limit_bytes", "bytes",
        "Size the journal may reach (storage.journal_max_bytes).",
    ),
    _spec(
        _INTAKE, "gauge", "outrider_disk_free_bytes", "bytes", "Free space on the data folder's disk.",
    ),
    # --- worker ---
    _spec(
        _WORKER, "counter", "outrider_records_judged_total", "records",
        "Records whose verdicts are committed.", labels=("model", "role"),
    ),
    _spec(
        _WORKER, "counter", "outrider_records_duplicate_total", "records",
        "Records received again with equal content; counted once.", labels=("model",),
    ),
    _spec(
        _WORKER, "counter", "outrider_records_conflict_total", "records",
        "Records received again with other content; the first counts.", labels=("model",),
    ),
    _spec(
        _WORKER, "counter", "outrider_records_redacted_total", "records",
        "Records with redacted inputs: the replica's answers are not held against production's.",
        labels=("model",),
    ),
    _spec(
        _WORKER, "counter", "outrider_dead_letters_total", "records",
        "Records that could not be used.", labels=("model", "reason"),
        enums={"reason": ("conflict", "expired", "payload", "poison", "unreadable")},
    ),
    _spec(
        _WORKER, "histogram", "outrider_block_seconds", "seconds",
        "Time spent on one journal block, by stage.", labels=("stage",),
        enums={"stage": ("read", "shadow", "assertions", "live_tests", "profile", "commit")}, buckets=_FAST,
    ),
    _spec(
        _WORKER, "gauge", "outrider_lag_blocks", "blocks",
        "Journal blocks not judged yet.", labels=("model", "role"),
    ),
    _spec(
        _WORKER, "gauge", "outrider_lag_records", "records",
        "Records not judged yet.", labels=("model", "role"),
    ),
    _spec(
        _WORKER, "gauge", "outrider_lag_seconds", "seconds",
        "Age of the oldest record not judged yet; 0 when none waits.", labels=("model", "role"),
    ),
    _spec(
        _WORKER, "histogram", "outrider_verdict_delay_seconds", "seconds",
        "From receipt of a record to its committed verdicts.", labels=("model",), buckets=_DELAY,
    ),
    _spec(
        _WORKER, "histogram", "outrider_capture_to_verdict_seconds", "seconds",
        "From capture of a record (its ts, where that lies within the hour before its receipt; else its "
        "receipt) to its committed verdicts; without backfilled records.",
        labels=("model",), buckets=_AGE,
    ),
    _spec(
        _WORKER, "counter", "outrider_slo_records_total", "records",
        "Records of models with an objective, by outcome: judged within models.NAME.latency.slo_s or "
        "over it, backfilled, or shed.",
        labels=("model", "outcome"),
        enums={"outcome": ("in_time", "over", "backfilled", "shed_sampled", "shed_expired")},
    ),
    _spec(
        _WORKER, "gauge", "outrider_slo_seconds", "seconds",
        "Objective for the age at verdict (models.NAME.latency.slo_s).", labels=("model",),
    ),
    _spec(
        _WORKER, "gauge", "outrider_admitted_ratio", "ratio",
        "Share of the entities whose records are judged now.", labels=("model",),
    ),
    _spec(
        _WORKER, "gauge", "outrider_shed_measure", "step",
        "Shedding in force: 0 none, 1 live tests, 2 challengers too, 3 judges too, 4 records too "
        "(sampled), 5 a backlog.", labels=("model",),
    ),
    _spec(
        _WORKER, "counter", "outrider_skips_total", "jumps",
        "Skips of a backlog; windows restarted.", labels=("model",),
    ),
    _spec(
        _WORKER, "gauge", "outrider_backfill_records", "records",
        "Skipped or unanswered records not judged yet.", labels=("model",),
    ),
    _spec(
        _WORKER, "gauge", "outrider_model_info", "info",
        "1 for the version that plays a role: join on model and role to get it.",
        labels=("model", "role", "version"),
    ),
    # --- shadow engine: by the model whose version is the root of the trunk ---
    _spec(
        _ENGINE, "gauge", "outrider_engine_up", "processes",
        "1 while the engine of a trunk runs and all its versions are loaded.",
        labels=("model",),
    ),
    _spec(
        _ENGINE, "counter", "outrider_engine_restarts_total", "restarts",
        "Restarts of engines: killed beyond a deadline or bound of memory, or ended by themselves.",
        labels=("model", "reason"), enums={"reason": ("deadline", "died", "memory")},
    ),
    _spec(
        _ENGINE, "counter", "outrider_engine_records_total", "records",
        "Records in forward passes, each once per pass.", labels=("model",),
    ),
    _spec(
        _ENGINE, "counter", "outrider_engine_trunk_forwards_total", "passes",
        "Forward passes: the part that versions share runs once in each.", labels=("model",),
    ),
    _spec(
        _ENGINE, "counter", "outrider_engine_head_forwards_total", "passes",
        "Versions answered by these passes: over the passes, what sharing a trunk saves.", labels=("model",),
    ),
    _spec(
        _ENGINE, "counter", "outrider_engine_busy_seconds_total", "seconds",
        "Time in forward passes: its rate is the share of the time that the device is in use.",
        labels=("model",),
    ),
    _spec(
        _ENGINE, "gauge", "outrider_engine_queued_records", "records",
        "Records asked and not answered yet.", labels=("model",),
    ),
    _spec(
        _ENGINE, "gauge", "outrider_engine_weights_bytes", "bytes",
        "Weights: in memory, and as the versions would take each for itself.",
        labels=("model", "counted"), enums={"counted": ("in_memory", "each_alone")},
    ),
    _spec(
        _ENGINE, "gauge", "outrider_owed_records", "records",
        "Records that a version has not answered in time and is asked about again: behind the cursor of a "
        "challenger, and among outrider_backfill_records of the champion.", labels=("model", "role"),
    ),
    _spec(
        _ENGINE, "gauge", "outrider_shadows_left_out", "versions",
        "Disabled versions, after failures; the page shows the reason.",
        labels=("model", "role"),
    ),
    # --- assertions and live tests ---
    _spec(
        _ASSERT, "counter", "outrider_flags_total", "flags",
        "Subjects on which an assertion fired.", labels=("model", "role", "assertion", "level"),
    ),
    _spec(
        _ASSERT, "counter", "outrider_flags_thinned_total", "flags",
        "Flags beyond the rate limit (flags.per_minute): counted, not kept.", labels=("model", "assertion"),
        is_at_zero=False,
    ),
    _spec(
        _ASSERT, "counter", "outrider_slice_records_total", "records",
        "Records that the champion's slot judged, by slice: the slices that models.NAME.slices names; others "
        "count under __other__.", labels=("model", "slice"), is_at_zero=False,
    ),
    _spec(
        _ASSERT, "counter", "outrider_slice_flags_total", "flags",
        "Flags of the champion's slot, by slice as in outrider_slice_records_total.",
        labels=("model", "slice", "assertion"), is_at_zero=False,
    ),
    _spec(
        _ASSERT, "counter", "outrider_values_folded_total", "records",
        "Records and labels of which a stated value counts under __other__, by dimension: version, slice, "
        "answer, label, or group: with its attribute.", labels=("model", "dimension"), is_at_zero=False,
    ),
    _spec(
        _ASSERT, "counter", "outrider_incidents_total", "incidents",
        "Incidents opened.", labels=("model", "level"), process="trainer",
    ),
    _spec(
        _ASSERT, "gauge", "outrider_incidents_open", "incidents",
        "Incidents that are open or acknowledged; muted ones are not.", labels=("model", "level"),
        process="trainer",
    ),
    _spec(
        _ASSERT, "gauge", "outrider_alarm", "alarms",
        "1 while an incident is open or acknowledged; absent without one. Assertion is what it is about.",
        labels=("model", "kind", "level", "assertion"), enums={"kind": _ALARM}, process="trainer",
    ),
    _spec(
        _ASSERT, "counter", "outrider_assertion_seconds_total", "seconds",
        "Time of an assertion, over all blocks.", labels=("model", "assertion"),
    ),
    _spec(
        _ASSERT, "counter", "outrider_assertion_strikes_total", "strikes",
        "Blocks on which an assertion gave no verdict; the page says why.", labels=("model", "assertion"),
    ),
    _spec(
        _ASSERT, "gauge", "outrider_assertion_suspended", "assertions",
        "1 while an assertion is suspended, after its strikes or by a person.", labels=("model", "assertion"),
    ),
    _spec(
        _ASSERT, "counter", "outrider_weak_labels_total", "corrections",
        "Corrections that an assertion proposes.", labels=("model", "role", "assertion"), is_at_zero=False,
    ),
    _spec(
        _ASSERT, "counter", "outrider_late_records_total", "records",
        "Records left out of windows: later than the window's lateness.",
        labels=("model", "role"),
    ),
    _spec(
        _ASSERT, "counter", "outrider_records_ahead_total", "records",
        "Records with an event time more than intake.max_ahead_s ahead of receipt: windows use the "
        "time of receipt.", labels=("model",),
    ),
    _spec(
        _ASSERT, "gauge", "outrider_window_entities", "entities",
        "Entities with context in the windows of a slot.", labels=("model", "role"),
    ),
    _spec(
        _ASSERT, "gauge", "outrider_window_rows", "records",
        "Records that the windows of a slot keep as context or hold back.", labels=("model", "role"),
    ),
    _spec(
        _ASSERT, "gauge", "outrider_window_bytes", "bytes",
        "Memory of the windows of a slot.", labels=("model", "role"),
    ),
    _spec(
        _PROC, "gauge", "outrider_config_refused", "configurations",
        "1 while a changed configuration was refused: the last good one stays.",
    ),
    _spec(
        _INTAKE, "counter", "outrider_records_expired_total", "records",
        "Records whose rows left state.db for their age.", labels=("model",),
    ),
    _spec(
        _INTAKE, "counter", "outrider_payloads_expired_total", "records",
        "Records with an expired payload; their flags and labels stay.", labels=("model",),
    ),
    _spec(
        _WORKER, "gauge", "outrider_paused", "pauses",
        "1 while a person has paused this work; records are still taken.", labels=("model", "what"),
        enums={"what": ("shadow", "live-tests")},
    ),
    _spec(
        _ASSERT, "counter", "outrider_live_questions_total", "questions",
        "Sampled questions of live behavioral tests.", labels=("model", "test", "outcome"),
        enums={"outcome": ("passed", "failed", "not_applicable", "shed", "unanswered")},
    ),
    _spec(
        _ASSERT, "gauge", "outrider_live_test_failure_ratio", "ratio",
        "Failure rate of a live behavioral test for the current version, weighted by inverse "
        "probability; its anytime bounds; and the tolerance.",
        labels=("model", "test", "figure"), enums={"figure": ("rate", "low", "high", "tolerance")},
    ),
    _spec(
        _ASSERT, "gauge", "outrider_live_test_alarm", "tests",
        "1 once the lower bound of the failure rate has passed the tolerance.", labels=("model", "test"),
    ),
    _spec(
        _ASSERT, "gauge", "outrider_live_endpoint_up", "endpoints",
        "1 while the endpoint of live tests answers; 0 after an unanswered request; absent without an "
        "endpoint.",
        labels=("model",),
    ),
    # --- judges ---
    _spec(
        _ASSERT, "counter", "outrider_judge_questions_total", "questions",
        "Records for a judge, by outcome of their question.", labels=("model", "judge", "outcome"),
        enums={
            "outcome": (
                "answered", "cached", "invalid", "unavailable", "over_budget", "shed", "not_applicable",
            )
        },
    ),
    _spec(
        _ASSERT, "counter", "outrider_judge_tokens_total", "tokens",
        "Tokens of judges, as their server counts.", labels=("model", "judge"),
    ),
    _spec(
        _ASSERT, "histogram", "outrider_judge_seconds", "seconds",
        "Time of one question to a judge.", labels=("model", "judge"), buckets=_DELAY,
    ),
    _spec(
        _ASSERT, "gauge", "outrider_judge_lag_seconds", "seconds",
        "Age of the oldest record that a judge has not passed; 0 without any.",
        labels=("model", "judge"),
    ),
    # --- improvement loop ---
    _spec(
        _LOOP, "counter", "outrider_labels_joined_total", "labels",
        "Labels joined to their record.", labels=("model",), process="worker",
    ),
    _spec(
        _LOOP, "gauge", "outrider_label_queue_records", "records",
        "Records requested for labelling, without a label yet.", labels=("model",),
    ),
    _spec(
        _LOOP, "counter", "outrider_dataset_versions_total", "versions",
        "Dataset versions committed.", labels=("model",),
    ),
    _spec(
        _LOOP, "counter", "outrider_dataset_rows_total", "rows",
        "Rows written into dataset versions.", labels=("model",),
    ),
    _spec(
        _LOOP, "counter", "outrider_quarantined_rows_total", "rows",
        "Rows that validation kept out of a dataset version.", labels=("model",),
    ),
    _spec(
        _LOOP, "counter", "outrider_retrains_total", "jobs",
        "Retrain jobs ended, by result.", labels=("model", "status"),
        enums={"status": ENDED},
    ),
    _spec(
        _LOOP, "histogram", "outrider_retrain_seconds", "seconds",
        "Time of one retrain job, by stage.", labels=("model", "stage"),
        enums={"stage": ("dataset", "train", "shadow", "gate")}, buckets=_JOB, is_at_zero=False,
    ),
    _spec(
        _LOOP, "counter", "outrider_gate_verdicts_total", "verdicts",
        "Verdicts of the promotion gate.", labels=("model", "result"),
        enums={"result": ("promoted", "waiting", "undecided", "refused")},
    ),
    _spec(
        _LOOP, "gauge", "outrider_suite_tests", "tests",
        "Behavioral tests by their newest outcome for the champion, and for challengers together.",
        labels=("model", "role", "status"),
        enums={"status": ("passed", "failed", "skipped", "error")},
    ),
    _spec(
        _LOOP, "gauge", "outrider_shadow_agreement_ratio", "ratio",
        "Records on which a challenger agrees with the champion by the task's deciding measure: raw, "
        "and beyond the champion's own noise, with anytime bounds.",
        labels=("model", "version", "figure"), enums={"figure": ("raw", "beyond", "low", "high")},
    ),
    _spec(
        _LOOP, "counter", "outrider_watches_total", "watches",
        "Watches over new champions ended, by outcome.", labels=("model", "outcome"),
        enums={"outcome": ("kept", "proposed", "rolled_back", "superseded")},
    ),
    _spec(
        _LOOP, "counter", "outrider_trigger_evaluations_total", "evaluations",
        "Evaluations of the triggers of retraining, by outcome.", labels=("model", "trigger", "outcome"),
        enums={"trigger": TRIGGERS, "outcome": TRIGGER_OUTCOMES}, is_at_zero=False,
    ),
    _spec(
        _LOOP, "gauge", "outrider_version_mismatch_ratio", "ratio",
        "Records of the last ten minutes that state another version than the champion's, of those that "
        "state one and came since it is champion.", labels=("model",),
    ),
    _spec(
        _LOOP, "counter", "outrider_shadow_tests_total", "tests",
        "Shadow tests ended, by recommendation.", labels=("model", "recommendation"),
        enums={"recommendation": ("promote", "keep", "undecided")},
    ),
    _spec(
        _LOOP, "counter", "outrider_webhook_deliveries_total", "attempts",
        "Deliveries of webhooks, and repeated attempts.", labels=("outcome",),
        enums={"outcome": ("delivered", "retry")},
    ),
    _spec(
        _LOOP, "gauge", "outrider_outbox_pending", "events", "Events not delivered yet.",
    ),
    # --- processes ---
    _spec(
        _PROC, "gauge", "outrider_process_up", "info",
        "1 while the process reports; 0 after 5 s of silence.", labels=("process",),
    ),
    _spec(
        _PROC, "gauge", "outrider_build_info", "info",
        "1, with the versions as labels.", labels=("version", "python"),
    ),
    _spec(
        _PROC, "gauge", "outrider_start_timestamp_seconds", "seconds",
        "Start of the process, as Unix time.",
    ),
    _spec(
        _PROC, "gauge", "outrider_resident_bytes", "bytes", "Resident memory of the process.",
    ),
    _spec(
        _PROC, "counter", "outrider_cpu_seconds_total", "seconds", "Processor time used by the process.",
    ),
    _spec(
        _PROC, "counter", "outrider_label_values_folded_total", "values",
        "Label values counted under __other__ because a label had too many.", labels=("metric",),
    ),
)  # fmt: skip

BY_NAME: Mapping[str, MetricSpec] = MappingProxyType({spec.name: spec for spec in CATALOGUE})
BY_SAMPLE: Mapping[str, MetricSpec] = MappingProxyType(
    {sample: spec for spec in CATALOGUE for sample in spec.sample_names}
)
