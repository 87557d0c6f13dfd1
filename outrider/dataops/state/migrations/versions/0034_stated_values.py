"""Books of stated values, and classes without a name."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "stated_dimension",
        sa.Column("model", sa.String(), primary_key=True),
        sa.Column("dimension", sa.String(), primary_key=True),
        *(
            sa.Column(name, sa.Integer(), nullable=False)
            for name in ("minute_us", "total", "folded", "error")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stated_value",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("model", "dimension", "value")),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in ("count", "met_us")),
        sa.Column("is_named", sa.Boolean(), nullable=False),
        sqlite_with_rowid=False,
    )
    for table in ("record", "label"):
        op.add_column(table, sa.Column("is_other_class", sa.Boolean(), nullable=True))


def downgrade() -> None:
    for table in ("record", "label"):
        op.drop_column(table, "is_other_class")
    op.drop_table("stated_value")
    op.drop_table("stated_dimension")
