"""What is dealt out first exists: a file that moves would fall to the end of the run without a word."""

from pathlib import Path

import pytest

from .conftest import LONGEST, TOGETHER


@pytest.mark.parametrize("file", [*LONGEST, *TOGETHER, *TOGETHER.values()])
def test_a_file_that_is_begun_early_exists(file: str) -> None:
    assert (Path(__file__).parents[1] / file).exists()
