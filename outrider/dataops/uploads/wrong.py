"""Refusal of an upload's content."""

from outrider.errors import ValidationRefused


class WrongUpload(ValidationRefused):
    """Announced or received content that no version can be made of.

    Attributes
    ----------
    facts
        Members beside the sentence: file, tensor, expected, got.
    """

    def __init__(self, why: str, **facts: object) -> None:
        super().__init__(why)
        self.facts = facts
