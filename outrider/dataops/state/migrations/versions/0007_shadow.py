"""Sources of versions; shadow tests."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model_version", sa.Column("source", sa.String(), nullable=True))
    op.create_table(
        "shadow_test",
        *(sa.Column(name, sa.String(), primary_key=True) for name in ("model", "version")),
        sa.Column("began_us", sa.Integer(), primary_key=True),
        sa.Column("champion", sa.String(), nullable=False),
        sa.Column("after_seq", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Integer(), nullable=True) for name in ("ends_us", "ends_rows", "ended_us")),
        sa.Column("recommendation", sa.String(), nullable=False),
        sa.Column("findings", sa.JSON(), nullable=False),
    )
    op.create_index("strike_reason", "strike", ["model", "reason"])


def downgrade() -> None:
    op.drop_index("strike_reason", "strike")
    op.drop_table("shadow_test")
    op.drop_column("model_version", "source")
