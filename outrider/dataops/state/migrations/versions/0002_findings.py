"""Findings beyond one record: members, weak labels, counts, reviews, incidents, checkpoints, judges."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # An index and a table cannot share a name.
    op.drop_index("flag_record", table_name="flag")
    op.create_index("flag_of_record", "flag", ["model", "record_id"], unique=False)
    op.create_table(
        "champion_border",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("model", "seq"),
    )
    op.create_table(
        "flag_count",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("slice", sa.String(), nullable=False),
        sa.Column("minute_us", sa.Integer(), nullable=False),
        sa.Column("flags", sa.Integer(), nullable=False),
        sa.Column("kept", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot", "assertion", "revision", "slice", "minute_us"),
    )
    op.create_table(
        "flag_record",
        sa.Column("flag_id", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("flag_id", "record_id"),
    )
    op.create_index("flag_record_member", "flag_record", ["model", "record_id"], unique=False)
    op.create_table(
        "incident",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("slice", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("opened_us", sa.Integer(), nullable=False),
        sa.Column("last_flag_us", sa.Integer(), nullable=False),
        sa.Column("muted_until_us", sa.Integer(), nullable=False),
        sa.Column("resolved_us", sa.Integer(), nullable=True),
        sa.Column("flags", sa.Integer(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("first_record", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("incident_status", "incident", ["model", "status"], unique=False)
    op.create_table(
        "judge_answer",
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("input_digest", sa.String(), nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("judge", "input_digest"),
    )
    op.create_table(
        "review",
        sa.Column("flag_id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("is_error", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("flag_id"),
    )
    op.create_index("review_assertion", "review", ["model", "assertion"], unique=False)
    op.create_table(
        "weak_label",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("flag_id", sa.String(), nullable=False),
        sa.Column("assertion", sa.String(), nullable=False),
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("element", sa.Integer(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("ts_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("weak_label_record", "weak_label", ["model", "record_id"], unique=False)
    op.create_table(
        "window_checkpoint",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("window", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot", "window"),
    )


def downgrade() -> None:
    op.drop_table("window_checkpoint")
    op.drop_index("weak_label_record", table_name="weak_label")
    op.drop_table("weak_label")
    op.drop_index("review_assertion", table_name="review")
    op.drop_table("review")
    op.drop_table("judge_answer")
    op.drop_index("incident_status", table_name="incident")
    op.drop_table("incident")
    op.drop_index("flag_record_member", table_name="flag_record")
    op.drop_table("flag_record")
    op.drop_table("flag_count")
    op.drop_table("champion_border")
    op.drop_index("flag_of_record", table_name="flag")
    op.create_index("flag_record", "flag", ["model", "record_id"], unique=False)
