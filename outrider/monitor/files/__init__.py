"""Files of records: read, named, cut into blocks, sent to a service.

May import intake.
"""
