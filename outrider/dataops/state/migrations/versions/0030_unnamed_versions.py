"""Records whose stated version is counted with others."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("record", sa.Column("is_unnamed", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("record", "is_unnamed")
