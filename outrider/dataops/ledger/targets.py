"""Kind of a model's target: number or class.

A number is to be near to, a class to be hit. A declared task decides; values do only where none is declared.
"""

from sqlalchemy import Connection

from outrider.assertions.comparison.matching import is_numeric


def declare_target(connection: Connection, model: str, is_number: bool | None) -> None:
    """Keep the declared kind of a target; None where values decide."""
    if declared_number(connection, model) == is_number:
        return
    connection.exec_driver_sql("DELETE FROM declared_target WHERE model = ?", (model,))
    if is_number is not None:
        query = "INSERT INTO declared_target (model, is_number) VALUES (?, ?)"
        connection.exec_driver_sql(query, (model, is_number))


def declared_number(connection: Connection, model: str) -> bool | None:
    """Declared kind of a target; None where values decide."""
    query = "SELECT is_number FROM declared_target WHERE model = ?"
    found = connection.exec_driver_sql(query, (model,)).scalar()
    return None if found is None else bool(found)


def is_number(connection: Connection, model: str, *answers: list[object]) -> bool:
    """True where the target is a number."""
    declared = declared_number(connection, model)
    return any(map(is_numeric, answers)) if declared is None else declared
