"""Records as columns: the batch, its schema and its conversions."""

from .batch import MARKS, PARTS, REST, SYSTEM, TIME, Batch, schema_digest

__all__ = ["MARKS", "PARTS", "REST", "SYSTEM", "TIME", "Batch", "schema_digest"]
