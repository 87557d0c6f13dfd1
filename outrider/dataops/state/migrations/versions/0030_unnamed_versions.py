"""Unnamed versions, last verdicts of assertions, first records of versions."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("record", sa.Column("is_unnamed", sa.Boolean(), nullable=True))
    op.create_table(
        "first_seen",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("model", "kind", "name")),
        sa.Column("at_us", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", "kind", "name"),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO first_seen SELECT model, 'version', version, min(minute_us) FROM record_count"
        " WHERE version != '' GROUP BY model, version"
    )
    zero = sa.text("0")
    op.add_column("assertion", sa.Column("judged_us", sa.Integer(), nullable=False, server_default=zero))


def downgrade() -> None:
    op.drop_table("first_seen")
    op.drop_column("assertion", "judged_us")
    op.drop_column("record", "is_unnamed")
