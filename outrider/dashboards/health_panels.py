"""Row of panels on the health of the service."""

from .panel import EACH, MODEL, Panel, PanelRow, grouped

HEALTH = PanelRow(
    "Health",
    (
        Panel(
            "Processes",
            "1 while a process reports.",
            (("max by (process) (outrider_process_up)", "{{process}}"),),
            kind="stat",
            unit="none",
            width=8,
        ),
        Panel(
            "Paused or refused",
            "1 while shadow models or live tests are paused, or a configuration was refused.",
            (
                (grouped("max", "model, what", "outrider_paused"), "{{model}} {{what}}"),
                ("max(outrider_config_refused)", "configuration refused"),
                ("sum(increase(outrider_clock_steps_total[1h]))", "clock set in the last hour"),
            ),
            kind="stat",
            unit="none",
            width=8,
        ),
        Panel(
            "Build",
            "Versions in use.",
            (("max by (version, python) (outrider_build_info)", ""),),
            kind="table",
            unit="none",
            width=8,
        ),
        Panel(
            "Memory",
            "Resident.",
            (("sum by (process) (outrider_resident_bytes)", "{{process}}"),),
            unit="bytes",
            width=6,
        ),
        Panel(
            "Processor",
            "Cores in use.",
            ((f"sum by (process) (rate(outrider_cpu_seconds_total{EACH}))", "{{process}}"),),
            width=6,
        ),
        Panel(
            "Disk",
            "Journal, its limit, and free space.",
            (
                ("max(outrider_journal_bytes)", "journal"),
                ("max(outrider_journal_limit_bytes)", "limit"),
                ("max(outrider_disk_free_bytes)", "free"),
                ("max(outrider_queue_bytes)", "queue"),
            ),
            unit="bytes",
            width=6,
        ),
        Panel(
            "Expired",
            "Records per hour whose payload expired, and whose rows left state.db.",
            (
                (
                    f"sum by (model) (increase(outrider_payloads_expired_total{{{MODEL}}}[1h]))",
                    "{{model}} payloads",
                ),
                (
                    f"sum by (model) (increase(outrider_records_expired_total{{{MODEL}}}[1h]))",
                    "{{model}} rows",
                ),
            ),
            unit="none",
            width=6,
        ),
        Panel(
            "Uptime",
            "Since each process started.",
            (("time() - max by (process) (outrider_start_timestamp_seconds)", "{{process}}"),),
            unit="s",
            width=6,
        ),
        Panel(
            "Dead letters",
            "Records that could not be used, total.",
            ((grouped("sum", "model, reason", "outrider_dead_letters_total"), "{{model}} {{reason}}"),),
            width=12,
        ),
        Panel(
            "Folded label values",
            "Values counted under __other__ because a metric's label had too many; 0 is right.",
            (("sum(outrider_label_values_folded_total) or vector(0)", "folded"),),
            kind="stat",
            unit="none",
            width=12,
        ),
    ),
)
