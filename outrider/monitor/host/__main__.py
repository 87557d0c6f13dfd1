"""The assertion host process; see :mod:`outrider.monitor.host.process`."""

from .process import main

if __name__ == "__main__":
    main()
