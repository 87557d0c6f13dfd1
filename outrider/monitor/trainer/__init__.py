"""The trainer: jobs in, datasets, candidates, evidence and decisions out.

May import every room but intake, host, worker, api, web and server.
"""
