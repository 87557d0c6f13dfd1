"""What the host process adds to six assertions over a block of 64 records: time that passes, and CPU time.

``HostClient.judge`` and ``Checker.check`` judge the same batch in turn. The figure is the difference of their
medians; next to it stand that of the fastest tenth, which says what it costs on a machine without other work,
and the seconds that both processes were on a core, which other work changes less.
"""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.assertions.engine import CHECKS, records
from benchmarks.figure import Figure
from outrider.assertions import Batch, Checker, load_assertions
from outrider.monitor.host.client import HostClient

ROWS, BLOCKS, WARM = 64, 5_000, 200
TARGET_US = 1.5


def cpu_s(pid: int) -> float:
    """Seconds that a process was on a core."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def measure(host: HostClient, checker: Checker) -> None:
    """Print the figures."""
    table = records(ROWS).to_arrow()
    names = [judge.name for judge in checker.assertions]
    assert host.pid is not None
    apart, inside = [], []
    used_inside = used_apart = 0.0
    for block in range(WARM + BLOCKS):
        if block == WARM:
            used_inside = used_apart = 0.0
            of_host = cpu_s(host.pid)
        # A batch keeps what it converted: each gets one that knows nothing.
        start, used = time.perf_counter(), time.process_time()
        judged = host.check(Batch(table, model="m"), assertions=names)
        apart.append(time.perf_counter() - start)
        used_apart += time.process_time() - used
        assert not judged.failures
        start, used = time.perf_counter(), time.process_time()
        checker.check(Batch(table, model="m"))
        inside.append(time.perf_counter() - start)
        used_inside += time.process_time() - used
    of_host = cpu_s(host.pid) - of_host
    apart, inside = sorted(apart[WARM:]), sorted(inside[WARM:])
    fast = BLOCKS // 10
    _show("per_record", statistics.median(apart), statistics.median(inside), TARGET_US)
    _show("per_record_fastest_tenth", apart[fast // 2], inside[fast // 2])
    _show("cpu_per_record", (used_apart + of_host) / BLOCKS, used_inside / BLOCKS)


def _show(name: str, apart_s: float, inside_s: float, target_us: float | None = None) -> None:
    cost = (apart_s - inside_s) / ROWS * 1e6
    told = f"{TARGET_US} µs allowed; a block {apart_s * 1e6:.4g} µs there, {inside_s * 1e6:.4g} µs in process"
    ratio, target = TARGET_US / cost, None if target_us is None else 1.0
    Figure(f"assertions.isolation.{name}", cost, "µs", told, ratio, target).show()


def run() -> None:
    """Start a host with the assertions and measure."""
    with tempfile.TemporaryDirectory() as folder:
        checks = Path(folder, "checks.py")
        checks.write_text(CHECKS.replace("RULES =", "SHIFT = 0.0\nRULES =", 1), encoding="utf-8")
        Path(folder, "outrider.toml").write_text('[models.m]\nassertions = ["checks.py"]\n', encoding="utf-8")
        host = HostClient(Path(folder, "outrider.toml"), deadline_s=5.0)
        host.start()
        try:
            measure(host, Checker(load_assertions(checks)))
        finally:
            host.stop()


if __name__ == "__main__":
    run()
