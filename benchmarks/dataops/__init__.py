"""Dataset versions against plain Parquet files and Delta Lake."""
