"""Uploads of versions, and tokens of jobs that are trained outside."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_token",
        sa.Column("digest", sa.String(), primary_key=True),
        sa.Column("job", sa.String(), nullable=False, unique=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("until_us", sa.Integer(), nullable=False),
    )
    op.create_table(
        "version_upload",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=True),
        sa.Column("token", sa.Boolean(), nullable=False),
        sa.Column("begun_by", sa.String(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("created_us", sa.Integer(), nullable=False),
        sa.Column("until_us", sa.Integer(), nullable=False),
    )
    op.create_index("version_upload_job", "version_upload", ["job"])
    op.create_index("version_upload_status", "version_upload", ["status"])


def downgrade() -> None:
    op.drop_index("version_upload_status", "version_upload")
    op.drop_index("version_upload_job", "version_upload")
    op.drop_table("version_upload")
    op.drop_table("job_token")
