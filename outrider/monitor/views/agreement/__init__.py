"""Agreement of challengers with the champion, and the report of a model.

May import fairness, overview, service.
"""
