"""Registration: configured and published versions in, loaded predictors out.

May import settings, engine.
"""
