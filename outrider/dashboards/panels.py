"""Rows of panels of the Grafana dashboard, each with its queries."""

from .health_panels import HEALTH
from .panel import EACH, MODEL, Panel, PanelRow, grouped, per_1000, quantile, rate

ROWS: tuple[PanelRow, ...] = (
    PanelRow(
        "Traffic",
        (
            Panel(
                "Records accepted",
                "Acknowledged records per second: they are on disk.",
                ((rate("outrider_records_accepted_total", "model"), "{{model}}"),),
                unit="reqps",
            ),
            Panel(
                "Records refused",
                "Refused at intake, per second, by reason.",
                ((rate("outrider_records_rejected_total", "reason", where=""), "{{reason}}"),),
                unit="reqps",
            ),
            Panel(
                "Commit time",
                "One durable group commit of the journal.",
                (
                    (quantile(0.5, "outrider_commit_seconds"), "p50"),
                    (quantile(0.99, "outrider_commit_seconds"), "p99"),
                ),
                unit="s",
            ),
            Panel(
                "Intake",
                "Bytes of request bodies after decompression.",
                ((f"sum(rate(outrider_intake_bytes_total{EACH}))", "bytes"),),
                unit="Bps",
            ),
            Panel(
                "Responses",
                "Responses of the intake routes per second.",
                ((rate("outrider_responses_total", "route, status", where=""), "{{route}} {{status}}"),),
                unit="reqps",
            ),
            Panel(
                "Connections",
                "Open connections, and those closed per second by cause.",
                (
                    ("sum(outrider_connections)", "open"),
                    (rate("outrider_connections_closed_total", "cause", where=""), "closed: {{cause}}"),
                ),
            ),
            Panel(
                "Repeats",
                "Duplicates are counted once; of a conflict the first stands.",
                (
                    (rate("outrider_records_duplicate_total", "model"), "{{model}} duplicates"),
                    (rate("outrider_records_conflict_total", "model"), "{{model}} conflicts"),
                ),
                unit="reqps",
            ),
            Panel(
                "Redacted",
                "Values replaced before they were written; records left out of agreement with the replica.",
                (
                    (rate("outrider_redacted_values_total", "model, kind"), "{{model}} {{kind}}"),
                    (rate("outrider_records_redacted_total", "model"), "{{model}} records left out"),
                ),
            ),
            Panel(
                "Requests and responses joined",
                "What became of requests and responses that came apart.",
                ((rate("outrider_halves_total", "model, outcome"), "{{model}} {{outcome}}"),),
                unit="reqps",
            ),
            Panel(
                "Spans and log records",
                "What OpenTelemetry's exporters sent, and what became of it.",
                ((rate("outrider_otlp_items_total", "signal, outcome"), "{{signal}} {{outcome}}"),),
                unit="reqps",
            ),
        ),
    ),
    PanelRow(
        "Flags",
        (
            Panel(
                "Flags per 1,000 records, champion",
                "By assertion.",
                ((per_1000("assertion", "champion"), "{{model}} {{assertion}}"),),
                width=12,
            ),
            Panel(
                "Flags by slice",
                "Per 1,000 records of the slice; of the slices that models.NAME.slices names.",
                (
                    (
                        f"1000 * sum by (model, slice) (rate(outrider_slice_flags_total{{{MODEL}}}{EACH})) / "
                        f"sum by (model, slice) (rate(outrider_slice_records_total{{{MODEL}}}{EACH}))",
                        "{{model}} {{slice}}",
                    ),
                ),
                unit="none",
                width=12,
            ),
            Panel(
                "Flags by level",
                "Flags per second.",
                ((rate("outrider_flags_total", "level"), "{{level}}"),),
                unit="reqps",
                width=6,
            ),
            Panel(
                "Suspended assertions",
                "After too many strikes, or by a person; the others go on.",
                ((f"sum(outrider_assertion_suspended{{{MODEL}}}) or vector(0)", "suspended"),),
                kind="stat",
                unit="none",
                width=6,
            ),
            Panel(
                "Windows",
                "Memory of the windows, and what they hold.",
                (
                    (grouped("sum", "model, role", "outrider_window_bytes"), "{{model}} {{role}} bytes"),
                    (grouped("sum", "model, role", "outrider_window_rows"), "{{model}} {{role}} records"),
                    (
                        grouped("sum", "model, role", "outrider_window_entities"),
                        "{{model}} {{role}} entities",
                    ),
                ),
                unit="none",
                width=12,
            ),
            Panel(
                "Weak labels and late records",
                "Corrections proposed, and records that came too late for their window, per second.",
                (
                    (rate("outrider_weak_labels_total", "assertion"), "{{assertion}}"),
                    (rate("outrider_late_records_total", "model"), "{{model}} late"),
                    (rate("outrider_records_ahead_total", "model"), "{{model}} ahead"),
                ),
                unit="reqps",
                width=12,
            ),
            Panel(
                "Open incidents",
                "Flags of one assertion in one slice since one onset; muted ones are left out.",
                ((grouped("sum", "model, level", "outrider_incidents_open"), "{{model}} {{level}}"),),
                unit="none",
                width=8,
            ),
            Panel(
                "Incidents opened",
                "Per hour.",
                (
                    (
                        f"sum by (model, level) (increase(outrider_incidents_total{{{MODEL}}}[1h]))",
                        "{{model}} {{level}}",
                    ),
                ),
                width=8,
            ),
            Panel(
                "Flags thinned",
                "Flags of storms that are counted without their evidence, per second.",
                ((rate("outrider_flags_thinned_total", "model, assertion"), "{{model}} {{assertion}}"),),
                unit="reqps",
                width=8,
            ),
            Panel(
                "Values without a name",
                "Records and labels of which counts fold a stated value into __other__, per second.",
                ((rate("outrider_values_folded_total", "model, dimension"), "{{model}} {{dimension}}"),),
                unit="reqps",
                width=8,
            ),
            Panel(
                "Evaluation time",
                "Seconds per second: the share of a processor that one assertion takes.",
                ((rate("outrider_assertion_seconds_total", "assertion"), "{{assertion}}"),),
                unit="s",
                width=8,
            ),
            Panel(
                "Strikes",
                "Blocks on which an assertion gave no verdict, in the last hour.",
                (
                    (
                        f"sum by (assertion) (increase(outrider_assertion_strikes_total{{{MODEL}}}[1h]))",
                        "{{assertion}}",
                    ),
                ),
                width=8,
            ),
        ),
    ),
    PanelRow(
        "Live behavioral tests",
        (
            Panel(
                "Failure share",
                "Failures among the questions that applied and were asked.",
                (
                    (
                        rate(
                            "outrider_live_questions_total", "model, test", where=f'{MODEL}, outcome="failed"'
                        )
                        + " / "
                        + rate(
                            "outrider_live_questions_total",
                            "model, test",
                            where=f'{MODEL}, outcome=~"passed|failed"',
                        ),
                        "{{model}} {{test}}",
                    ),
                ),
                unit="percentunit",
                width=8,
            ),
            Panel(
                "Failure rate, proven",
                "Bounds that hold at all times together; an alarm is a lower one above what is tolerated.",
                ((f"outrider_live_test_failure_ratio{{{MODEL}}}", "{{test}} {{figure}}"),),
                unit="percentunit",
                width=8,
            ),
            Panel(
                "Questions",
                "By outcome; shed ones were sampled but not asked for lack of time.",
                ((rate("outrider_live_questions_total", "outcome"), "{{outcome}}"),),
                unit="reqps",
                width=8,
            ),
        ),
    ),
    PanelRow(
        "Judges",
        (
            Panel(
                "Questions to judges",
                "By outcome; those from the cache cost nothing.",
                ((rate("outrider_judge_questions_total", "judge, outcome"), "{{judge}} {{outcome}}"),),
                unit="reqps",
                width=6,
            ),
            Panel(
                "Tokens of judges",
                "Tokens per second, as the server counts them.",
                ((rate("outrider_judge_tokens_total", "model, judge"), "{{model}} {{judge}}"),),
                width=6,
            ),
            Panel(
                "Time of one question",
                "95th percentile.",
                ((quantile(0.95, "outrider_judge_seconds", by="judge", where=MODEL), "{{judge}}"),),
                unit="s",
                width=6,
            ),
            Panel(
                "Judges behind",
                "Age of the oldest record that a judge has not passed.",
                ((grouped("max", "model, judge", "outrider_judge_lag_seconds"), "{{model}} {{judge}}"),),
                unit="s",
                width=6,
            ),
        ),
    ),
    PanelRow(
        "Shadow",
        (
            Panel(
                "Flags per 1,000 records, by role",
                "Champion against challengers.",
                (
                    (per_1000("role", "champion"), "{{model}} champion"),
                    (per_1000("role", "challenger"), "{{model}} challengers"),
                ),
            ),
            Panel(
                "From capture to verdict",
                "Age of a record when its verdicts are committed, and the objective.",
                (
                    (quantile(0.5, "outrider_capture_to_verdict_seconds", where=MODEL), "p50"),
                    (quantile(0.99, "outrider_capture_to_verdict_seconds", where=MODEL), "p99"),
                    (grouped("max", "model", "outrider_slo_seconds"), "{{model}} objective"),
                ),
                unit="s",
            ),
            Panel(
                "Records by freshness",
                "Judged in time or over the objective, judged later, or shed; per second.",
                ((rate("outrider_slo_records_total", "outcome"), "{{outcome}}"),),
                unit="reqps",
            ),
            Panel(
                "Admitted share",
                "Of the entities whose records are judged; below 1 in overload.",
                ((grouped("min", "model", "outrider_admitted_ratio"), "{{model}}"),),
                unit="percentunit",
            ),
            Panel(
                "What is shed",
                "1 live tests, 2 challengers, 3 judges, 4 records, 5 a backlog; and skips.",
                (
                    (grouped("max", "model", "outrider_shed_measure"), "{{model}}"),
                    (f"sum by (model) (increase(outrider_skips_total{{{MODEL}}}{EACH}))", "{{model}} skips"),
                ),
            ),
            Panel(
                "Skipped records",
                "That are not judged yet.",
                ((grouped("sum", "model", "outrider_backfill_records"), "{{model}}"),),
            ),
            Panel(
                "From receipt to verdict",
                "Until the verdicts of a record are committed.",
                (
                    (quantile(0.5, "outrider_verdict_delay_seconds", where=MODEL), "p50"),
                    (quantile(0.99, "outrider_verdict_delay_seconds", where=MODEL), "p99"),
                ),
                unit="s",
            ),
            Panel(
                "Age of the oldest waiting record",
                "0 when none waits.",
                ((grouped("max", "model, role", "outrider_lag_seconds"), "{{model}} {{role}}"),),
                unit="s",
            ),
            Panel(
                "Backlog",
                "Records and journal blocks not judged yet.",
                (
                    (grouped("sum", "model, role", "outrider_lag_records"), "{{model}} {{role}} records"),
                    (grouped("sum", "model, role", "outrider_lag_blocks"), "{{model}} {{role}} blocks"),
                ),
            ),
            Panel(
                "Block time by stage, p95",
                "Where the worker spends its time.",
                ((quantile(0.95, "outrider_block_seconds", by="stage"), "{{stage}}"),),
                unit="s",
            ),
            Panel(
                "Engine duty",
                "Share of the time that the engine of a trunk is in a forward pass.",
                ((rate("outrider_engine_busy_seconds_total", "model"), "{{model}}"),),
                unit="percentunit",
            ),
            Panel(
                "Forward passes, and what they would be without a shared trunk",
                "Passes per second, and versions answered by them per second.",
                (
                    (rate("outrider_engine_trunk_forwards_total", "model"), "{{model}} passes"),
                    (rate("outrider_engine_head_forwards_total", "model"), "{{model}} versions"),
                ),
            ),
            Panel(
                "Engines",
                "Up is 1 at the model of a trunk while all its versions are loaded, 0 at models that run on "
                "another's trunk; a restart follows a hang or a death.",
                (
                    (grouped("max", "model", "outrider_engine_up"), "{{model}} up"),
                    (
                        rate("outrider_engine_restarts_total", "model, reason"),
                        "{{model}} restarts: {{reason}}",
                    ),
                    (
                        grouped("max", "model, role", "outrider_shadows_left_out"),
                        "{{model}} {{role}} versions left out",
                    ),
                ),
            ),
            Panel(
                "Records at the engines",
                "Answered per second, waiting, and those that a version is asked about again.",
                (
                    (
                        grouped("max", "model, role", "outrider_owed_records"),
                        "{{model}} {{role}} not answered",
                    ),
                    (rate("outrider_engine_records_total", "model"), "{{model}} per second"),
                    (grouped("max", "model", "outrider_engine_queued_records"), "{{model}} waiting"),
                ),
            ),
            Panel(
                "Weights in memory",
                "As they lie there, and as the versions would take each for itself.",
                (
                    (
                        grouped("max", "model, counted", "outrider_engine_weights_bytes"),
                        "{{model}} {{counted}}",
                    ),
                ),
                unit="bytes",
            ),
            Panel(
                "Versions",
                "Which version plays which role.",
                ((grouped("max", "model, role, version", "outrider_model_info"), ""),),
                kind="table",
                unit="none",
            ),
        ),
    ),
    PanelRow(
        "Improvement loop",
        (
            Panel(
                "Labels joined",
                "Per second.",
                (
                    (rate("outrider_labels_joined_total", "model"), "{{model}} joined"),
                    (rate("outrider_labels_accepted_total", "model"), "{{model}} accepted"),
                ),
                unit="reqps",
                width=6,
            ),
            Panel(
                "Waiting for a label",
                "Records put up for labelling.",
                ((grouped("sum", "model", "outrider_label_queue_records"), "{{model}}"),),
                width=6,
            ),
            Panel(
                "Dataset rows",
                "Written and quarantined, total.",
                (
                    (grouped("sum", "model", "outrider_dataset_rows_total"), "{{model}} rows"),
                    (grouped("sum", "model", "outrider_quarantined_rows_total"), "{{model}} quarantined"),
                    (grouped("sum", "model", "outrider_dataset_versions_total"), "{{model}} versions"),
                ),
                width=6,
            ),
            Panel(
                "Webhooks",
                "Delivery attempts by outcome, and events that wait.",
                (
                    (rate("outrider_webhook_deliveries_total", "outcome", where=""), "{{outcome}}"),
                    ("sum(outrider_outbox_pending)", "waiting"),
                ),
                width=6,
            ),
            Panel(
                "Retrains",
                "Jobs that ended, total.",
                ((grouped("sum", "model, status", "outrider_retrains_total"), "{{model}} {{status}}"),),
                width=6,
            ),
            Panel(
                "Gate verdicts",
                "Total.",
                ((grouped("sum", "model, result", "outrider_gate_verdicts_total"), "{{model}} {{result}}"),),
                width=6,
            ),
            Panel(
                "Behavioral tests",
                "By newest outcome, of champion and challengers.",
                (
                    (
                        f"sum by (model, role, status) (outrider_suite_tests{{{MODEL}}}) > 0",
                        "{{model}} {{role}} {{status}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Agreement with the champion",
                "Of running shadow tests, beyond what the champion disagrees with itself.",
                ((f'outrider_shadow_agreement_ratio{{{MODEL},figure="beyond"}}', "{{model}} {{version}}"),),
                unit="percentunit",
                width=6,
            ),
            Panel(
                "Shadow tests",
                "That ended, by what they recommend.",
                (
                    (
                        grouped("sum", "model, recommendation", "outrider_shadow_tests_total"),
                        "{{model}} {{recommendation}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Records of another version",
                "Share of the last ten minutes that states another version than the champion's.",
                ((f"max by (model) (outrider_version_mismatch_ratio{{{MODEL}}})", "{{model}}"),),
                unit="percentunit",
                width=6,
            ),
            Panel(
                "Watches over champions",
                "That ended, by outcome.",
                ((grouped("sum", "model, outcome", "outrider_watches_total"), "{{model}} {{outcome}}"),),
                width=6,
            ),
            Panel(
                "Triggers of retraining",
                "Runs that they started or suggested, and that a guard held.",
                (
                    (
                        "sum by (model, trigger, outcome) "
                        f'(outrider_trigger_evaluations_total{{{MODEL},outcome!="quiet"}})',
                        "{{model}} {{trigger}} {{outcome}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Retrain time by stage",
                "Mean of all jobs.",
                (
                    (
                        grouped("sum", "stage", "outrider_retrain_seconds_sum")
                        + " / "
                        + grouped("sum", "stage", "outrider_retrain_seconds_count"),
                        "{{stage}}",
                    ),
                ),
                unit="s",
                width=6,
            ),
        ),
    ),
    HEALTH,
)
