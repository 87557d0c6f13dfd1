"""Series of a model's figures, with the events beside them.

Each is of one judged version.
"""
