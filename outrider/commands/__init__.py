"""Commands of ``outrider``, one module each, imported on demand."""
