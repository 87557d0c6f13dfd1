"""Call of a model as far as known, from its span, its logs or both."""

from typing import Any

import msgspec

from outrider.monitor.intake.protocols.chat_columns import Fields, content_text, input_fields, output_fields

_REASONS = {
    "tool_call": "tool_calls",  # GenAI conventions
    "tool_use": "tool_calls",
    "tool-calls": "tool_calls",  # Vercel's AI SDK
    "content-filter": "content_filter",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "max_tokens": "length",
    "length": "length",
    "safety": "content_filter",
}


class Call(msgspec.Struct, omit_defaults=True):
    id: str = ""
    """``trace-span`` in hex."""
    trace: str = ""
    service: str = ""
    conversation: str | None = None
    start_us: int = 0
    """Begin (of a part, its writing), µs since the epoch; 0 if unknown."""
    is_span: bool = False
    weight: float = 1.0
    """Calls that it stands for, where traces are sampled."""
    inputs: list[Any] = []
    answer: Any = None
    finish_reason: str | None = None
    has_inputs: bool = False
    """Whether they were reported at all, with or without their content."""
    has_outputs: bool = False
    has_details: bool = False
    """Whether all messages came at once; else single messages add up."""
    tools: Any = None
    passages: list[str] = []
    attrs: Fields = {}

    @property
    def is_whole(self) -> bool:
        """True if nothing more is to be waited for."""
        return self.is_span and self.has_inputs and (self.has_outputs or "error" in self.attrs)

    @property
    def has_ended(self) -> bool:
        """True if something says that the model has answered."""
        return self.is_span or self.has_outputs or self.has_details

    def columns(self, passages: list[str]) -> Fields:
        """Values by full column name; ``passages`` were retrieved for it elsewhere."""
        found = list(dict.fromkeys([*passages, *self.passages]))
        asked = input_fields(self.inputs, tools=self.tools, passages=found or None)
        message = self.answer if isinstance(self.answer, dict) else {}
        said = output_fields(
            answer=content_text(message.get("content")),
            finish_reason=common_reason(self.finish_reason),
            tool_calls=message.get("tool_calls"),
        )
        row: Fields = {f"inputs.{name}": value for name, value in asked.items()}
        row |= {f"outputs.{name}": value for name, value in said.items()}
        row |= {f"attrs.{name}": value for name, value in self.attrs.items()}
        return row


def common_reason(reason: str | None) -> str | None:
    """Finish reason in OpenAI's words where it has one."""
    return reason if reason is None else _REASONS.get(reason.lower(), reason)


def merged(parts: list[Call]) -> Call:
    """Merge all parts of a call; of two that say the same thing the span counts, then the first."""
    ordered = sorted(parts, key=lambda part: (not part.is_span, part.start_us))
    first = ordered[0]
    made = Call(id=first.id, trace=first.trace, start_us=first.start_us)
    details = [part for part in ordered if part.has_details and part.inputs]
    for part in ordered:
        made.is_span |= part.is_span
        made.weight = max(made.weight, part.weight)
        made.has_inputs |= part.has_inputs
        made.has_outputs |= part.has_outputs
        made.has_details |= part.has_details
        made.service = made.service or part.service
        made.conversation = made.conversation or part.conversation
        made.answer = made.answer or part.answer
        made.finish_reason = made.finish_reason or part.finish_reason
        made.tools = made.tools or part.tools
    made.passages = [text for part in ordered for text in part.passages]
    for part in reversed(ordered):
        made.attrs |= part.attrs
    said = details[:1] or ordered
    made.inputs = [message for part in said for message in part.inputs]
    return made
