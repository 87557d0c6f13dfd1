"""Triggers of retraining: memory, log, alerts, and when behavioral tests last passed."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trigger_state",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("trigger", sa.String(), primary_key=True),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.Column("suggested_us", sa.Integer(), nullable=True),
        sa.Column("suggestion", sa.String(), nullable=False),
        sa.Column("fired", sa.Integer(), nullable=False),
        sa.Column("suggested", sa.Integer(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("quiet", sa.Integer(), nullable=False),
    )
    op.create_table(
        "trigger_evaluation",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("score", sa.Float(), nullable=True),
        sa.Column("threshold", sa.Float(), nullable=True),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("since_us", sa.Integer(), nullable=False),
        sa.Column("until_us", sa.Integer(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(), nullable=True),
    )
    op.create_index("trigger_evaluation_order", "trigger_evaluation", ["model", "trigger", "id"])
    op.create_table(
        "alert",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("fingerprint", sa.String(), primary_key=True),
        sa.Column("starts_us", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("received_us", sa.Integer(), nullable=False),
        sa.Column("resolved_us", sa.Integer(), nullable=True),
    )
    op.create_table(
        "taken_message",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("at_us", sa.Integer(), nullable=False),
    )
    op.create_index("job_made", "job", ["model", "created_us"])
    op.add_column("suite_outcome", sa.Column("passed_us", sa.Integer(), nullable=True))
    op.execute("UPDATE suite_outcome SET passed_us = at_us WHERE status = 'passed'")


def downgrade() -> None:
    op.drop_column("suite_outcome", "passed_us")
    op.drop_index("job_made", "job")
    op.drop_table("taken_message")
    op.drop_table("alert")
    op.drop_index("trigger_evaluation_order", "trigger_evaluation")
    op.drop_table("trigger_evaluation")
    op.drop_table("trigger_state")
