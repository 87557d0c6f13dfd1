"""The server process, which takes records; see :mod:`outrider.monitor.server.process`."""

import sys

from outrider.monitor.server.process import main

if __name__ == "__main__":
    sys.exit(main())
