"""Author of the judged answer of a record."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("record", sa.Column("by_replica", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("record", "by_replica")
