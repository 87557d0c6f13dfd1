"""Files of records, read, named, and sent to a service blockwise."""
