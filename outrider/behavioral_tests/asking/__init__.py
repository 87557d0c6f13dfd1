"""Ask models: a `Predictor` of this process, or a model behind HTTP.

`server.ModelServer` is the only client of served models (deadline, rate, retry, breaker, reasons), and every
question has an outcome (`Fate`). Two request formats are implemented here: `records` (instances/predictions,
V1) and `chat` (chat/completions). The third, Open Inference (V2), reads scores as configured for a version
and is implemented with the model kinds: `outrider.dataops.model_kinds.open_inference`.
"""

from .predictor import answers_to, ask, joined

__all__ = ["answers_to", "ask", "joined"]
