"""Columns that an assertion was seen to read."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "assertion", sa.Column("reads", sa.String(), nullable=False, server_default=sa.text("'[]'"))
    )
    zero = sa.text("0")
    op.add_column("assertion", sa.Column("of_sender", sa.Boolean(), nullable=False, server_default=zero))


def downgrade() -> None:
    op.drop_column("assertion", "of_sender")
    op.drop_column("assertion", "reads")
