"""A GPU behind the engine: batches in, answers of captured passes out.

May import asks, executor, device options, faults, pacing.
"""
