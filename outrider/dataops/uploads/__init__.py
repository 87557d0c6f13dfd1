"""Uploads of versions: announced, received in pieces, checked, then registered.

May import datasets, improvement, model_kinds, models, payloads, state, confinement, outbox.

Nothing of an upload is an object before all of it is there and right; no pickle is ever read.
"""
