"""Records whose stated version is counted with others; last verdicts of assertions."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("record", sa.Column("is_unnamed", sa.Boolean(), nullable=True))
    zero = sa.text("0")
    op.add_column("assertion", sa.Column("judged_us", sa.Integer(), nullable=False, server_default=zero))


def downgrade() -> None:
    op.drop_column("assertion", "judged_us")
    op.drop_column("record", "is_unnamed")
