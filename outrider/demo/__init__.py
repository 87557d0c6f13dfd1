"""Demo: the service's real parts make a wrong digit reader right.

``service`` (production), ``driver`` (its traffic) and ``labeller`` (a human) are processes of their own that
know a URL and a key; ``run`` starts them beside ``outrider serve`` and reads what happened over HTTP.
"""
