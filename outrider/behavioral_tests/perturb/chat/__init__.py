"""Changes of conversations and of prompts.

Conversations are lists of messages with ``role`` and ``content``.
"""

from .columns import contents
from .injection import INJECTIONS, inject
from .manner import language, layout, persona, politeness
from .order import reorder_examples, reorder_instructions

__all__ = [
    "INJECTIONS",
    "contents",
    "inject",
    "language",
    "layout",
    "persona",
    "politeness",
    "reorder_examples",
    "reorder_instructions",
]
