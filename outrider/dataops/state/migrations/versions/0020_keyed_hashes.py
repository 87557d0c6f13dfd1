"""Hashes of expired ids, keyed with the secret of the data folder."""

from alembic import op

from outrider.dataops.state.folder_secret import keyed_hash, secret_beside

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    if connection.exec_driver_sql("SELECT 1 FROM expired_record LIMIT 1").first() is None:
        return
    secret = secret_beside(connection)
    connection.exec_driver_sql("PRAGMA secure_delete = ON")
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.create_function("keyed", 1, lambda digest: keyed_hash(secret, digest), deterministic=True)
    for statement in (
        "CREATE TEMP TABLE made_anew AS SELECT keyed(hash) AS hash, day FROM expired_record",
        "DELETE FROM expired_record",  # all of them: their pages are zeroed as a whole
        "INSERT INTO expired_record SELECT hash, day FROM made_anew ORDER BY hash",
        "DROP TABLE made_anew",
    ):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    # Hashes without a key cannot be had back: repeats of these records are then taken as new ones.
    pass
