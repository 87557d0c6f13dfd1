"""Ask models: a `Predictor` of this process, or a model behind HTTP.

`server.ModelServer` is the only client of served models (deadline, rate, retry, breaker, reasons), and every
question has a fate. Two forms lie here: `records` (instances/predictions, V1) and `chat` (chat/completions).
The third, Open Inference (V2), reads scores as the source of a version says and lies with the model kinds:
`outrider.dataops.model_kinds.open_inference`.
"""

from .predictor import answers_to, ask, joined

__all__ = ["answers_to", "ask", "joined"]
