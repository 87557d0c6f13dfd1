"""Profiles of windows take the place of quantile sketches."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("sketch")  # quantiles alone, which no profile can be made from
    op.create_table(
        "profile",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("span_s", sa.Integer(), nullable=False),
        sa.Column("start_us", sa.Integer(), nullable=False),
        sa.Column("slot", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("slice", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("layout", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("model", "span_s", "start_us", "slot", "version", "slice", "seq"),
    )
    op.create_index("profile_block", "profile", ["model", "slot", "seq"])
    op.create_table(
        "profile_layout",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("layout", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("model", "digest"),
    )


def downgrade() -> None:
    op.drop_table("profile_layout")
    op.drop_index("profile_block", "profile")
    op.drop_table("profile")
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
