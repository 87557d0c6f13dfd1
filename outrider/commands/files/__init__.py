"""Files of records as an intake: read, named, and sent to a running service block by block."""
