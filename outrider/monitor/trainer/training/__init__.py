"""Training stage of jobs, and its repetition."""
