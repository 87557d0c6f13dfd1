"""Loads numpy before any test: pytester puts ``sys.modules`` back, and numpy cannot be loaded twice."""

import outrider.behavioral_tests  # noqa: F401 - for what it loads
