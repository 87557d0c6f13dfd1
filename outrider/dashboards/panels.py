"""Panels of the Grafana dashboard by row, each with its queries."""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["short", "s", "bytes", "Bps", "percentunit", "reqps", "none"]
Query: TypeAlias = tuple[str, str]
"""PromQL and its legend."""

MODEL = 'model=~"$model"'
EACH = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of a row of 24 columns."""

    title: str
    description: str
    unit: Unit = "short"
    width: int = 8
    kind: Kind = "timeseries"
    queries: tuple[Query, ...] = ()

    def shows(self, *queries: Query) -> "Panel":
        """The panel with its queries."""
        return replace(self, queries=queries)


def rate(metric: str, by: str, name: str = "", *, where: str = MODEL) -> Query:
    """Increase of a counter per second; labels and ``name`` are its legend."""
    return f"sum by ({by}) (rate(outrider_{metric}{{{where}}}{EACH}))", _legend(by, name)


def hourly(metric: str, by: str, name: str = "") -> Query:
    """Increase of a counter in the last hour."""
    return f"sum by ({by}) (increase(outrider_{metric}{{{MODEL}}}[1h]))", _legend(by, name)


def latest(how: Literal["sum", "min", "max"], metric: str, by: str, name: str = "") -> Query:
    """Sum, least or most of a metric of the chosen models."""
    return f"{how} by ({by}) (outrider_{metric}{{{MODEL}}})", _legend(by, name)


def quantile(q: float, metric: str, by: str = "", *, where: str = "") -> Query:
    """Quantile of a histogram, by a label."""
    labels = f"le, {by}" if by else "le"
    counts = f"sum by ({labels}) (rate(outrider_{metric}_bucket{{{where}}}{EACH}))"
    return f"histogram_quantile({q}, {counts})", _legend(by, "") if by else f"p{100 * q:g}"


def ratio(above: Query, below: Query, *, times: str = "") -> Query:
    """One query over another of the same labels."""
    return f"{times}{above[0]} / {below[0]}", above[1]


def per_1000(by: str, role: str) -> str:
    """Flags per 1,000 judged records of a role, by a label."""
    where = f'{MODEL}, role="{role}"'
    flags, judged = (
        rate("flags_total", f"model, {by}", where=where),
        rate("records_judged_total", "model", where=where),
    )
    return f"1000 * {flags[0]} / on (model) group_left () {judged[0]}"


def _legend(by: str, name: str) -> str:
    if "{{" in name:
        return name
    return " ".join([*(f"{{{{{label}}}}}" for label in by.split(", ")), *([name] if name else [])])


ROWS: dict[str, tuple[Panel, ...]] = {
    "Traffic": (
        Panel("Records accepted", "Acknowledged records per second: they are on disk.", "reqps").shows(
            rate("records_accepted_total", "model")
        ),
        Panel("Records refused", "Refused at intake, per second, by reason.", "reqps").shows(
            rate("records_rejected_total", "reason", where="")
        ),
        Panel("Commit time", "One durable group commit of the journal.", "s").shows(
            quantile(0.5, "commit_seconds"), quantile(0.99, "commit_seconds")
        ),
        Panel("Intake", "Bytes of request bodies after decompression.", "Bps").shows(
            (f"sum(rate(outrider_intake_bytes_total{EACH}))", "bytes")
        ),
        Panel("Responses", "Responses of the intake routes per second.", "reqps").shows(
            rate("responses_total", "route, status", where="")
        ),
        Panel("Connections", "Open connections, and those closed per second by cause.").shows(
            ("sum(outrider_connections)", "open"),
            rate("connections_closed_total", "cause", "closed: {{cause}}", where=""),
        ),
        Panel("Repeats", "Duplicates are counted once; of a conflict the first stands.", "reqps").shows(
            rate("records_duplicate_total", "model", "duplicates"),
            rate("records_conflict_total", "model", "conflicts"),
        ),
        Panel(
            "Redacted",
            "Values replaced before they were written; records left out of agreement with the replica.",
        ).shows(
            rate("redacted_values_total", "model, kind"),
            rate("records_redacted_total", "model", "records left out"),
        ),
        Panel(
            "Requests and responses joined",
            "What became of requests and responses that came apart.",
            "reqps",
        ).shows(rate("halves_total", "model, outcome")),
        Panel(
            "Spans and log records",
            "What OpenTelemetry's exporters sent, and what became of it.",
            "reqps",
        ).shows(rate("otlp_items_total", "signal, outcome")),
    ),
    "Flags": (
        Panel("Flags per 1,000 records, champion", "By assertion.", "short", 12).shows(
            (per_1000("assertion", "champion"), "{{model}} {{assertion}}")
        ),
        Panel(
            "Flags by slice",
            "Per 1,000 records of the slice; of the slices that models.NAME.slices names.",
            "none",
            12,
        ).shows(
            ratio(
                rate("slice_flags_total", "model, slice"),
                rate("slice_records_total", "model, slice"),
                times="1000 * ",
            )
        ),
        Panel("Flags by level", "Flags per second.", "reqps", 6).shows(rate("flags_total", "level")),
        Panel(
            "Suspended assertions",
            "After too many strikes, or by a person; the others go on.",
            "none",
            6,
            "stat",
        ).shows((f"sum(outrider_assertion_suspended{{{MODEL}}}) or vector(0)", "suspended")),
        Panel("Windows", "Memory of the windows, and what they hold.", "none", 12).shows(
            latest("sum", "window_bytes", "model, role", "bytes"),
            latest("sum", "window_rows", "model, role", "records"),
            latest("sum", "window_entities", "model, role", "entities"),
        ),
        Panel(
            "Weak labels and late records",
            "Corrections proposed, and records that came too late for their window, per second.",
            "reqps",
            12,
        ).shows(
            rate("weak_labels_total", "assertion"),
            rate("late_records_total", "model", "late"),
            rate("records_ahead_total", "model", "ahead"),
        ),
        Panel(
            "Open incidents",
            "Flags of one assertion in one slice since one onset; muted ones are left out.",
            "none",
        ).shows(latest("sum", "incidents_open", "model, level")),
        Panel("Incidents opened", "Per hour.").shows(hourly("incidents_total", "model, level")),
        Panel(
            "Flags thinned",
            "Flags of storms that are counted without their evidence, per second.",
            "reqps",
        ).shows(rate("flags_thinned_total", "model, assertion")),
        Panel(
            "Values without a name",
            "Records and labels of which counts fold a stated value into __other__, per second.",
            "reqps",
        ).shows(rate("values_folded_total", "model, dimension")),
        Panel(
            "Evaluation time",
            "Seconds per second: the share of a processor that one assertion takes.",
            "s",
        ).shows(rate("assertion_seconds_total", "assertion")),
        Panel("Strikes", "Blocks on which an assertion gave no verdict, in the last hour.").shows(
            hourly("assertion_strikes_total", "assertion")
        ),
    ),
    "Live behavioral tests": (
        Panel(
            "Failure share", "Failures among the questions that applied and were asked.", "percentunit"
        ).shows(
            ratio(
                rate("live_questions_total", "model, test", where=f'{MODEL}, outcome="failed"'),
                rate("live_questions_total", "model, test", where=f'{MODEL}, outcome=~"passed|failed"'),
            )
        ),
        Panel(
            "Failure rate, proven",
            "Bounds that hold at all times together; an alarm is a lower one above what is tolerated.",
            "percentunit",
        ).shows((f"outrider_live_test_failure_ratio{{{MODEL}}}", "{{test}} {{figure}}")),
        Panel(
            "Questions", "By outcome; shed ones were sampled but not asked for lack of time.", "reqps"
        ).shows(rate("live_questions_total", "outcome")),
    ),
    "Judges": (
        Panel("Questions to judges", "By outcome; those from the cache cost nothing.", "reqps", 6).shows(
            rate("judge_questions_total", "judge, outcome")
        ),
        Panel("Tokens of judges", "Tokens per second, as the server counts them.", "short", 6).shows(
            rate("judge_tokens_total", "model, judge")
        ),
        Panel("Time of one question", "95th percentile.", "s", 6).shows(
            quantile(0.95, "judge_seconds", "judge", where=MODEL)
        ),
        Panel("Judges behind", "Age of the oldest record that a judge has not passed.", "s", 6).shows(
            latest("max", "judge_lag_seconds", "model, judge")
        ),
    ),
    "Shadow": (
        Panel("Flags per 1,000 records, by role", "Champion against challengers.").shows(
            (per_1000("role", "champion"), "{{model}} champion"),
            (per_1000("role", "challenger"), "{{model}} challengers"),
        ),
        Panel(
            "From capture to verdict",
            "Age of a record when its verdicts are committed, and the objective.",
            "s",
        ).shows(
            quantile(0.5, "capture_to_verdict_seconds", where=MODEL),
            quantile(0.99, "capture_to_verdict_seconds", where=MODEL),
            latest("max", "slo_seconds", "model", "objective"),
        ),
        Panel(
            "Records by freshness",
            "Judged in time or over the objective, judged later, or shed; per second.",
            "reqps",
        ).shows(rate("slo_records_total", "outcome")),
        Panel(
            "Admitted share",
            "Of the entities whose records are judged; below 1 in overload.",
            "percentunit",
        ).shows(latest("min", "admitted_ratio", "model")),
        Panel(
            "What is shed", "1 live tests, 2 challengers, 3 judges, 4 records, 5 a backlog; and skips."
        ).shows(
            latest("max", "shed_measure", "model"),
            (f"sum by (model) (increase(outrider_skips_total{{{MODEL}}}{EACH}))", "{{model}} skips"),
        ),
        Panel("Skipped records", "That are not judged yet.").shows(
            latest("sum", "backfill_records", "model")
        ),
        Panel("From receipt to verdict", "Until the verdicts of a record are committed.", "s").shows(
            quantile(0.5, "verdict_delay_seconds", where=MODEL),
            quantile(0.99, "verdict_delay_seconds", where=MODEL),
        ),
        Panel("Age of the oldest waiting record", "0 when none waits.", "s").shows(
            latest("max", "lag_seconds", "model, role")
        ),
        Panel("Backlog", "Records and journal blocks not judged yet.").shows(
            latest("sum", "lag_records", "model, role", "records"),
            latest("sum", "lag_blocks", "model, role", "blocks"),
        ),
        Panel("Block time by stage, p95", "Where the worker spends its time.", "s").shows(
            quantile(0.95, "block_seconds", "stage")
        ),
        Panel(
            "Engine duty",
            "Share of the time that the engine of a trunk is in a forward pass.",
            "percentunit",
        ).shows(rate("engine_busy_seconds_total", "model")),
        Panel(
            "Forward passes, and what they would be without a shared trunk",
            "Passes per second, and versions answered by them per second.",
        ).shows(
            rate("engine_trunk_forwards_total", "model", "passes"),
            rate("engine_head_forwards_total", "model", "versions"),
        ),
        Panel(
            "Engines",
            "Up is 1 at the model of a trunk while all its versions are loaded, 0 at models that run on "
            "another's trunk; a restart follows a hang or a death.",
        ).shows(
            latest("max", "engine_up", "model", "up"),
            rate("engine_restarts_total", "model, reason", "{{model}} restarts: {{reason}}"),
            latest("max", "shadows_left_out", "model, role", "versions left out"),
        ),
        Panel(
            "Records at the engines",
            "Answered per second, waiting, and those that a version is asked about again.",
        ).shows(
            latest("max", "owed_records", "model, role", "not answered"),
            rate("engine_records_total", "model", "per second"),
            latest("max", "engine_queued_records", "model", "waiting"),
        ),
        Panel(
            "Weights in memory",
            "As they lie there, and as the versions would take each for itself.",
            "bytes",
        ).shows(latest("max", "engine_weights_bytes", "model, counted")),
        Panel("Versions", "Which version plays which role.", "none", 8, "table").shows(
            (f"max by (model, role, version) (outrider_model_info{{{MODEL}}})", "")
        ),
    ),
    "Improvement loop": (
        Panel("Labels joined", "Per second.", "reqps", 6).shows(
            rate("labels_joined_total", "model", "joined"),
            rate("labels_accepted_total", "model", "accepted"),
        ),
        Panel("Waiting for a label", "Records put up for labelling.", "short", 6).shows(
            latest("sum", "label_queue_records", "model")
        ),
        Panel("Dataset rows", "Written and quarantined, total.", "short", 6).shows(
            latest("sum", "dataset_rows_total", "model", "rows"),
            latest("sum", "quarantined_rows_total", "model", "quarantined"),
            latest("sum", "dataset_versions_total", "model", "versions"),
        ),
        Panel("Webhooks", "Delivery attempts by outcome, and events that wait.", "short", 6).shows(
            rate("webhook_deliveries_total", "outcome", where=""),
            ("sum(outrider_outbox_pending)", "waiting"),
        ),
        Panel("Retrains", "Jobs that ended, total.", "short", 6).shows(
            latest("sum", "retrains_total", "model, status")
        ),
        Panel("Gate verdicts", "Total.", "short", 6).shows(
            latest("sum", "gate_verdicts_total", "model, result")
        ),
        Panel("Behavioral tests", "By newest outcome, of champion and challengers.", "short", 6).shows(
            (
                f"sum by (model, role, status) (outrider_suite_tests{{{MODEL}}}) > 0",
                "{{model}} {{role}} {{status}}",
            )
        ),
        Panel(
            "Agreement with the champion",
            "Of running shadow tests, beyond what the champion disagrees with itself.",
            "percentunit",
            6,
        ).shows((f'outrider_shadow_agreement_ratio{{{MODEL},figure="beyond"}}', "{{model}} {{version}}")),
        Panel("Shadow tests", "That ended, by what they recommend.", "short", 6).shows(
            latest("sum", "shadow_tests_total", "model, recommendation")
        ),
        Panel(
            "Records of another version",
            "Share of the last ten minutes that states another version than the champion's.",
            "percentunit",
            6,
        ).shows(latest("max", "version_mismatch_ratio", "model")),
        Panel("Watches over champions", "That ended, by outcome.", "short", 6).shows(
            latest("sum", "watches_total", "model, outcome")
        ),
        Panel(
            "Triggers of retraining",
            "Runs that they started or suggested, and that a guard held.",
            "short",
            6,
        ).shows(
            (
                "sum by (model, trigger, outcome) "
                f'(outrider_trigger_evaluations_total{{{MODEL},outcome!="quiet"}})',
                "{{model}} {{trigger}} {{outcome}}",
            )
        ),
        Panel("Retrain time by stage", "Mean of all jobs.", "s", 6).shows(
            ratio(
                latest("sum", "retrain_seconds_sum", "stage"),
                latest("sum", "retrain_seconds_count", "stage"),
            )
        ),
    ),
    "Health": (
        Panel("Processes", "1 while a process reports.", "none", 8, "stat").shows(
            ("max by (process) (outrider_process_up)", "{{process}}")
        ),
        Panel(
            "Paused or refused",
            "1 while shadow models or live tests are paused, or a configuration was refused.",
            "none",
            8,
            "stat",
        ).shows(
            latest("max", "paused", "model, what"),
            ("max(outrider_config_refused)", "configuration refused"),
            ("sum(increase(outrider_clock_steps_total[1h]))", "clock set in the last hour"),
        ),
        Panel("Build", "Versions in use.", "none", 8, "table").shows(
            ("max by (version, python) (outrider_build_info)", "")
        ),
        Panel("Memory", "Resident.", "bytes", 6).shows(
            ("sum by (process) (outrider_resident_bytes)", "{{process}}")
        ),
        Panel("Processor", "Cores in use.", "short", 6).shows(
            (f"sum by (process) (rate(outrider_cpu_seconds_total{EACH}))", "{{process}}")
        ),
        Panel("Disk", "Journal, its limit, and free space.", "bytes", 6).shows(
            ("max(outrider_journal_bytes)", "journal"),
            ("max(outrider_journal_limit_bytes)", "limit"),
            ("max(outrider_disk_free_bytes)", "free"),
            ("max(outrider_queue_bytes)", "queue"),
        ),
        Panel(
            "Expired", "Records per hour whose payload expired, and whose rows left state.db.", "none", 6
        ).shows(
            hourly("payloads_expired_total", "model", "payloads"),
            hourly("records_expired_total", "model", "rows"),
        ),
        Panel("Uptime", "Since each process started.", "s", 6).shows(
            ("time() - max by (process) (outrider_start_timestamp_seconds)", "{{process}}")
        ),
        Panel("Dead letters", "Records that could not be used, total.", "short", 12).shows(
            latest("sum", "dead_letters_total", "model, reason")
        ),
        Panel(
            "Folded label values",
            "Values counted under __other__ because a metric's label had too many; 0 is right.",
            "none",
            12,
            "stat",
        ).shows(("sum(outrider_label_values_folded_total) or vector(0)", "folded")),
    ),
}
