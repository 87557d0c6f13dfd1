"""Files of records as an intake.

Read, named, and sent to a running service block by block.
"""
