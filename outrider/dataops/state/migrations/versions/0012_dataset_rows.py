"""Files and lives of dataset rows."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("dataset_version", sa.Column("arrow_schema", sa.LargeBinary()))
    op.add_column("dataset_version", sa.Column("state", sa.LargeBinary()))
    op.create_table(
        "dataset_file",
        sa.Column("dataset", sa.String(), primary_key=True),
        sa.Column("file", sa.Integer(), primary_key=True),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("parts", sa.JSON()),
        sa.Column("ended", sa.Integer()),
    )
    op.drop_index("dataset_row_record", "dataset_row")
    op.rename_table("dataset_row", "dataset_row_before")
    op.create_table(
        "dataset_row",
        sa.Column("dataset", sa.String(), primary_key=True),
        sa.Column("file", sa.Integer(), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("removed", sa.Integer()),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("assertion", sa.String()),
        sa.Column("label_source", sa.String()),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary()),
        sa.Column("labels", sa.JSON()),
        sqlite_with_rowid=False,
    )
    names = "dataset, position, number, record_id, assertion, label_source, part"
    op.execute(
        f"INSERT INTO dataset_row ({names}, file) SELECT {names}, number FROM dataset_row_before "
        "ORDER BY dataset, number, position"
    )
    op.drop_table("dataset_row_before")
    op.create_index("dataset_row_record", "dataset_row", ["record_id"])
    op.create_index(
        "dataset_row_removed",
        "dataset_row",
        ["dataset", "removed"],
        sqlite_where=sa.text("removed IS NOT NULL"),
    )
    op.create_index(
        "dataset_row_relabelled",
        "dataset_row",
        ["dataset", "number"],
        sqlite_where=sa.text("labels IS NOT NULL"),
    )
    _files(op.get_bind())


def _files(connection: sa.Connection) -> None:
    """Files from the lists of all versions: each began with its version, and ended where none lists it."""
    versions = connection.execute(
        sa.text("SELECT dataset, number, manifest FROM dataset_version ORDER BY dataset, number")
    ).all()
    last: dict[str, int] = {}
    files: dict[tuple[str, int], dict[str, Any]] = {}
    for dataset, number, manifest in versions:
        for entry in (json.loads(manifest) if isinstance(manifest, str) else manifest).get("files", []):
            added = int(entry["added"])
            known = files.setdefault((dataset, added), {"last": number} | entry)
            known["last"] = number
        last[dataset] = number
    for (dataset, added), entry in files.items():
        ended = None if entry["last"] == last[dataset] else entry["last"] + 1
        facts = {key: entry[key] for key in ("sha256", "rows", "bytes")}
        facts |= {"dataset": dataset, "file": added, "ended": ended}
        connection.execute(
            sa.text(
                "INSERT INTO dataset_file (dataset, file, sha256, rows, bytes, ended) "
                "VALUES (:dataset, :file, :sha256, :rows, :bytes, :ended)"
            ),
            facts,
        )
        if ended is not None:
            connection.execute(
                sa.text("UPDATE dataset_row SET removed = :ended WHERE dataset = :dataset AND file = :file"),
                {"ended": ended, "dataset": dataset, "file": added},
            )


def downgrade() -> None:
    raise NotImplementedError(
        "rows that versions took back have no place in the tables before: restore a backup"
    )
