"""Labels of dataset rows, counts in manifests, states of quarantine.

A row of flagged and labelled records holds the latest label that its job had seen, and was never relabelled
before this revision: the first version that has it tells which.
"""

import json
from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_LABEL_ID = {"label_seq": "seq", "label_row": "row"}
_COUNTS = ("parts", "label_sources", "assertions")
_FIRST = """
    SELECT min(first.number) FROM dataset_row first WHERE first.dataset = dataset_row.dataset
    AND first.record_id = dataset_row.record_id AND coalesce(first.label_source, '') NOT LIKE 'weak:%'
"""
_UPTO = f"""
    SELECT CAST(json_extract(job.params, '$.upto_seq') AS INTEGER) FROM lineage_edge edge
    JOIN job ON job.id = edge.parent
    WHERE edge.child_kind = 'dataset' AND edge.child = dataset_row.dataset || '@' || ({_FIRST})
    AND edge.parent_kind = 'job' AND edge.role = 'trigger'
"""
_HELD = f"""
    SELECT label.<part> FROM label JOIN dataset_version version
    ON version.dataset = dataset_row.dataset AND version.number = dataset_row.number
    WHERE label.model = version.model AND label.record_id = dataset_row.record_id
    AND label.value IS NOT NULL AND label.seq <= ({_UPTO}) ORDER BY label.seq DESC, label.row DESC LIMIT 1
"""


def upgrade() -> None:
    for name in _LABEL_ID:
        op.add_column("dataset_row", sa.Column(name, sa.Integer()))
    held = ", ".join(f"{name} = ({_HELD.replace('<part>', part)})" for name, part in _LABEL_ID.items())
    op.execute(f"UPDATE dataset_row SET {held} WHERE coalesce(label_source, '') NOT LIKE 'weak:%'")
    op.add_column(
        "quarantine", sa.Column("state", sa.String(), nullable=False, server_default=sa.text("'held'"))
    )
    op.add_column("quarantine", sa.Column("rules", sa.String()))
    for name in _LABEL_ID:
        op.add_column("quarantine", sa.Column(name, sa.Integer()))
    # Reasons quoted the labels that they refused: the rule stays.
    op.execute(
        "UPDATE quarantine SET reasons = substr(reasons, 1, instr(reasons, ' expected, got ') + 8) "
        "WHERE reasons LIKE 'label: % expected, got %'"
    )
    _index_rows("record_id", "dataset", "number")
    _count_rows()


def _index_rows(*columns: str) -> None:
    op.drop_index("dataset_row_record", table_name="dataset_row")
    op.create_index("dataset_row_record", "dataset_row", [*columns], unique=False)


def _count_rows() -> None:
    """Put the counts of each version's rows into its manifest."""
    connection = op.get_bind()
    of_file: dict[tuple[str, int], dict[str, Counter[str]]] = {}
    grouped = connection.exec_driver_sql(
        "SELECT dataset, number, part, coalesce(label_source, ''), coalesce(assertion, ''), count(*) "
        "FROM dataset_row GROUP BY 1, 2, 3, 4, 5"
    )
    for dataset, number, part, source, assertions, rows in grouped:
        counts = of_file.setdefault((dataset, number), {kind: Counter() for kind in _COUNTS})
        counts["parts"][part] += rows
        counts["label_sources"][source] += rows
        counts["assertions"].update({name: rows for name in assertions.split(",") if name})
    versions = connection.exec_driver_sql("SELECT dataset, number, manifest FROM dataset_version").all()
    for dataset, number, text in versions:
        manifest = json.loads(text)
        files = [of_file.get((dataset, int(file["added"])), {}) for file in manifest.get("files", [])]
        totals = {kind: sum((file[kind] for file in files if file), Counter[str]()) for kind in _COUNTS}
        manifest["counts"] = {kind: dict(sorted(total.items())) for kind, total in totals.items()}
        connection.exec_driver_sql(
            "UPDATE dataset_version SET manifest = ? WHERE dataset = ? AND number = ?",
            (json.dumps(manifest), dataset, number),
        )


def downgrade() -> None:
    _index_rows("record_id")
    for name in ("state", "rules", *_LABEL_ID):
        op.drop_column("quarantine", name)
    for name in _LABEL_ID:
        op.drop_column("dataset_row", name)
