"""The engine process; see :mod:`outrider.monitor.engine.process`."""

from .process import main

if __name__ == "__main__":
    main()
