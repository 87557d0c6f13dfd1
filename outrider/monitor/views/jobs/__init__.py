"""Jobs of the trainer.

May import service.
"""
