"""Comparison of answers with labels and between two versions, and its verdict."""

from .comparison import DELTA_EDGES, PairedAnswers, StreamComparison, one_of_each, taken_back

__all__ = ["DELTA_EDGES", "PairedAnswers", "StreamComparison", "one_of_each", "taken_back"]
