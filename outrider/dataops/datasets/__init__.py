"""Dataset versions: flagged and labelled records in, validated versions out.

May import state, journal, labels, models, payloads, outbox.
"""
