"""Plugins that all tests share."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# A loaded machine is slow, not wrong: no test fails for the time it takes.
settings.register_profile("outrider", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outrider")
