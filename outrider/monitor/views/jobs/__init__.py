"""Jobs of the trainer, and the story of retrainings.

May import service, triggers.
"""
