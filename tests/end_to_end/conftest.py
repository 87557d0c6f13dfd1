"""What several modules share because it takes long to get: a service that has gone once round the loop."""

from collections.abc import Iterator

import pytest

from .loop import Loop, run_loop


@pytest.fixture(scope="package")  # of a session, it would idle to the end of the run
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """A running service whose model was fine-tuned on flagged and labelled records, and promoted."""
    with run_loop(tmp_path_factory.mktemp("loop")) as found:
        yield found
