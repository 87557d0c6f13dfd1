"""Records per slice and minute, and facts of assertion revisions.

Beside the counts of flags.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "record_count",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("slice", sa.String(), nullable=False),
        sa.Column("minute_us", sa.Integer(), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "slice", "minute_us"),
    )
    op.create_index(
        "flag_count_minute", "flag_count", ["model", "slot", "assertion", "minute_us"], unique=False
    )
    op.add_column(
        "assertion", sa.Column("suspension", sa.String(), nullable=False, server_default=sa.text("''"))
    )
    op.add_column(
        "assertion", sa.Column("first_seq", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )


def downgrade() -> None:
    op.drop_column("assertion", "first_seq")
    op.drop_column("assertion", "suspension")
    op.drop_index("flag_count_minute", table_name="flag_count")
    op.drop_table("record_count")
