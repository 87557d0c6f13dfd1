"""Targets that a configuration declares to be numbers or classes."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "declared_target",
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("is_number", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("model"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("declared_target")
