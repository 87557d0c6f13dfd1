"""Call of a model as far as known, from span or logs.

Or from both.
"""

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
    """A call, or a part of one that came alone.

    Attributes
    ----------
    id
        ``trace-span`` in hex.
    trace, service, conversation
        Where it belongs.
    start_us
        Its beginning (of a part, when it was written), µs since the epoch; 0 when unknown.
    is_span
        Whether its span is in it: nothing else says how long it took.
    weight
        How many calls it stands for, where traces are sampled.
    inputs, answer
        Messages that it was asked with; the message of its first choice.
    has_inputs, has_outputs
        Whether they were told at all, with or without their content.
    has_details
        Whether all of them came at once; the others are single messages that add up.
    tools, passages, attrs
        As in `chat_columns`.
    finish_reason
        Why the first choice ended.
    """

    id: str = ""
    trace: str = ""
    service: str = ""
    conversation: str | None = None
    start_us: int = 0
    is_span: bool = False
    weight: float = 1.0
    inputs: list[Any] = []
    answer: Any = None
    finish_reason: str | None = None
    has_inputs: bool = False
    has_outputs: bool = False
    has_details: bool = False
    tools: Any = None
    passages: list[str] = []
    attrs: Fields = {}

    @property
    def is_whole(self) -> bool:
        """True where nothing more is to be waited for."""
        return self.is_span and self.has_inputs and (self.has_outputs or "error" in self.attrs)

    @property
    def has_ended(self) -> bool:
        """True where something says that the model has answered."""
        return self.is_span or self.has_outputs or self.has_details

    def columns(self, passages: list[str]) -> Fields:
        """Values by full column name; unknown ones are left out.

        Parameters
        ----------
        passages
            What was retrieved for it elsewhere.
        """
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
    """Finish reason in OpenAI's words, as in mirrored requests.

    Other reasons stay.

    Examples
    --------
    >>> common_reason("tool_call"), common_reason("MAX_TOKENS"), common_reason("stop"), common_reason("error")
    ('tool_calls', 'length', 'stop', 'error')
    """
    return reason if reason is None else _REASONS.get(reason.lower(), reason)


def merged(parts: list[Call]) -> Call:
    """Merge all parts of a call.

    Of two that say the same thing, the span counts, then the first.

    Examples
    --------
    >>> asked = Call(id="t-s", inputs=[{"role": "user", "content": "Hi"}], has_inputs=True)
    >>> span = Call(id="t-s", is_span=True, start_us=5, attrs={"input_tokens": 1})
    >>> both = merged([asked, span])
    >>> both.start_us, both.inputs, both.attrs, both.is_whole
    (5, [{'role': 'user', 'content': 'Hi'}], {'input_tokens': 1}, False)
    """
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
