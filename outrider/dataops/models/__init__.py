"""The model registry: versions, lineage, weights and the circuit breaker.

May import state, payloads, outbox.
"""
