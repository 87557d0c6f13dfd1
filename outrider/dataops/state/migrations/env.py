"""Alembic's entry: runs the revisions on the connection that ``upgrade`` hands over."""

from alembic import context
from sqlmodel import SQLModel

from outrider.dataops.state import improvement_tables, tables  # noqa: F401 - both fill the metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
)
context.run_migrations()
