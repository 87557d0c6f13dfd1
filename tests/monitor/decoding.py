"""Bodies to blocks, by the calls that the intake makes for a native request."""

from outrider.monitor.intake.decode import Decoded, Decoder, Form, RecordKind


def decode_body(
    decoder: Decoder,
    body: bytes,
    *,
    kind: RecordKind = "records",
    form: Form = "json",
    received_us: int,
    model: str | None = None,
) -> Decoded:
    """Known columns by the fast path, all others by the general one."""
    known = (
        decoder.read_known(body, form=form, model=model, received_us=received_us)
        if kind == "records"
        else None
    )
    parts, rejected = (known, None) if known else decoder.read(body, kind=kind, form=form, model=model)
    return decoder.build(parts, rejected, kind=kind, received_us=received_us)
