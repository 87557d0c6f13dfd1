"""Read models: state and journal in, facts for API and pages out.

May import settings, http, stream, process.
"""
