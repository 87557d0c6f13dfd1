"""The shadow engine: batches, trunks, adapters, compressed twins, the whole path."""
