"""Outcomes of behavioral tests per model version, and live test rates."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "suite_outcome",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "version", "suite", "test")),
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("revision", "kind", "capability", "description", "status")
        ),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("cases", "failures", "not_applicable")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("tolerance", "rate", "low", "high")),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=False),  # the last: SQLite reads the others without it
        sa.PrimaryKeyConstraint("model", "version", "suite", "test"),
    )
    op.create_table(
        "live_rate",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "test", "revision", "version")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("asked", "failed")),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("rate", "low", "high", "tolerance")),
        sa.Column("alarm_us", sa.Integer(), nullable=True),
        sa.Column("updated_us", sa.Integer(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("model", "test", "revision", "version"),
    )
    op.create_table(
        "live_budget",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "slot")),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slot"),
    )
    op.add_column(
        "incident", sa.Column("kind", sa.String(), nullable=False, server_default=sa.text("'flags'"))
    )
    op.add_column(
        "live_answer", sa.Column("probability", sa.Float(), nullable=False, server_default=sa.text("1"))
    )
    op.add_column(
        "assertion", sa.Column("definition", sa.String(), nullable=False, server_default=sa.text("''"))
    )


def downgrade() -> None:
    op.drop_column("assertion", "definition")
    op.drop_column("live_answer", "probability")
    op.drop_column("incident", "kind")
    op.drop_table("live_budget")
    op.drop_table("live_rate")
    op.drop_table("suite_outcome")
