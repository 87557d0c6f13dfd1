"""A GPU behind the engine: batches in, answers of captured passes out."""
