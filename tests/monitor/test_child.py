"""What a process of the service sets before it begins."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from outrider.monitor.child import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
block = [bytes(6_000_000) for _ in range(4)]
del block
before = faults()
for _ in range(10):
    block = [bytes(6_000_000) for _ in range(4)]
    del block
print(faults() - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc is meant")
def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    pages = 10 * 4 * 6_000_000 // 4096
    assert page_faults("keep") < pages // 10 < page_faults("as it is")
