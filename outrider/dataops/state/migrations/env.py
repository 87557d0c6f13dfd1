"""Alembic's entry: runs the revisions on the connection that ``upgrade`` hands over."""

from alembic import context
from sqlmodel import SQLModel

from outrider.dataops.state import (  # noqa: F401 - they fill the metadata
    access_tables,
    erasure_tables,
    improvement_tables,
    series_tables,
    tables,
)

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
context.run_migrations()
