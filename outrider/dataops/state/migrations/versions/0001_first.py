"""First schema: everything that survives a restart."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "answer",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "version", "seq"),
    )
    op.create_table(
        "assertion",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("suspended_until_us", sa.Integer(), nullable=False),
        sa.Column("first_seen_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "name", "revision"),
    )
    op.create_table(
        "counter",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot", "name"),
    )
    op.create_table(
        "cursor",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot"),
    )
    op.create_table(
        "dataset_row",
        sa.Column("dataset", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=True),
        sa.Column("label_source", sa.String(), nullable=True),
        sa.Column("part", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "number", "position"),
    )
    op.create_index("dataset_row_record", "dataset_row", ["record_id"], unique=False)
    op.create_table(
        "dataset_version",
        sa.Column("dataset", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("manifest", sa.JSON(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "number"),
    )
    op.create_table(
        "dead_letter",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq", "row"),
    )
    op.create_table(
        "flag",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("severity", sa.Float(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("evidence", sa.String(), nullable=True),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("ts_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("flag_assertion", "flag", ["model", "assertion", "seq"], unique=False)
    op.create_index("flag_order", "flag", ["model", "seq", "row"], unique=False)
    op.create_index("flag_record", "flag", ["model", "record_id"], unique=False)
    op.create_table(
        "gate_verdict",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("candidate", sa.String(), nullable=False),
        sa.Column("champion", sa.String(), nullable=False),
        sa.Column("promoted", sa.Boolean(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("started_us", sa.Integer(), nullable=True),
        sa.Column("finished_us", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_status", "job", ["status"], unique=False)
    op.create_table(
        "label",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=True),
        sa.Column("label", sa.JSON(), nullable=False),
        sa.Column("ts_us", sa.Integer(), nullable=False),
        sa.Column("received_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("seq", "row"),
    )
    op.create_index("label_record", "label", ["model", "record_id"], unique=False)
    op.create_table(
        "label_request",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("probability", sa.Float(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "record_id"),
    )
    op.create_table(
        "lineage_edge",
        sa.Column("child_kind", sa.String(), nullable=False),
        sa.Column("child", sa.String(), nullable=False),
        sa.Column("parent_kind", sa.String(), nullable=False),
        sa.Column("parent", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("child_kind", "child", "parent_kind", "parent", "role"),
    )
    op.create_table(
        "live_answer",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("test", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("ts_us", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("model", "test", "record_id", "version"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "model_version",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("weights", sa.String(), nullable=True),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("replaced", sa.String(), nullable=True),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("changed_us", sa.Integer(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("model", "version"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("next_attempt_us", sa.Integer(), nullable=False),
        sa.Column("delivered_us", sa.Integer(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("outbox_due", "outbox", ["delivered_us", "next_attempt_us"], unique=False)
    op.create_table(
        "quarantine",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("reasons", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("quarantine_record", "quarantine", ["dataset", "record_id"], unique=False)
    op.create_table(
        "record",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("ts_us", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("entity", sa.String(), nullable=True),
        sa.Column("slice", sa.String(), nullable=True),
        sa.Column("predicted", sa.String(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("model", "id"),
    )
    op.create_index("record_block", "record", ["model", "seq"], unique=False)
    op.create_table(
        "sketch",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("column", sa.String(), nullable=False),
        sa.Column("hour_us", sa.Integer(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("nulls", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot", "column", "hour_us"),
    )
    op.create_table(
        "strike",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def downgrade() -> None:
    op.drop_table("strike")
    op.drop_table("sketch")
    op.drop_index("record_block", table_name="record")
    op.drop_table("record")
    op.drop_index("quarantine_record", table_name="quarantine")
    op.drop_table("quarantine")
    op.drop_index("outbox_due", table_name="outbox")
    op.drop_table("outbox")
    op.drop_table("model_version")
    op.drop_table("meta")
    op.drop_table("live_answer")
    op.drop_table("lineage_edge")
    op.drop_table("label_request")
    op.drop_index("label_record", table_name="label")
    op.drop_table("label")
    op.drop_index("job_status", table_name="job")
    op.drop_table("job")
    op.drop_table("gate_verdict")
    op.drop_index("flag_record", table_name="flag")
    op.drop_index("flag_order", table_name="flag")
    op.drop_index("flag_assertion", table_name="flag")
    op.drop_table("flag")
    op.drop_table("dead_letter")
    op.drop_table("dataset_version")
    op.drop_index("dataset_row_record", table_name="dataset_row")
    op.drop_table("dataset_row")
    op.drop_table("cursor")
    op.drop_table("counter")
    op.drop_table("assertion")
    op.drop_table("answer")
