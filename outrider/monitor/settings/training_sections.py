"""Settings of LoRA adapters and of distillation."""

from pydantic import Field

from .sections import Section


class LoraSettings(Section):
    """Shape of a new LoRA adapter; a champion's adapter keeps its shape."""

    rank: int = Field(default=8, ge=1, le=1024, description="of the low-rank matrices")
    alpha: float | None = Field(default=None, gt=0, description="scaling times rank; default twice the rank")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="share of inputs that a step leaves out")
    layers: tuple[str, ...] = Field(
        default=(), description="ends of names of layers; default all linear ones but the head"
    )


class DistillSettings(Section):
    """Distillation of the champion into `architecture`."""

    temperature: float = Field(default=2.0, gt=0, description="softens the classes of both sides")
    label_share: float = Field(
        default=0.5, ge=0, le=1, description="share of labels in the loss; the rest is the champion's answers"
    )
