"""Registration: configured and published versions in, loaded predictors out.

May import settings, metrics, stream, process, engine.
"""
