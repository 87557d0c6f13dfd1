"""Outrider: ML production monitoring and model assertions.

Import what you use from the sub-packages: ``outrider.assertions``, ``outrider.behavioral_tests``,
``outrider.monitor.client``. This file stays empty: the client is imported inside other people's services.
"""
