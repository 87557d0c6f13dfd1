"""The worker process; see :mod:`outrider.monitor.worker.process`."""

from .process import main

if __name__ == "__main__":
    main()
