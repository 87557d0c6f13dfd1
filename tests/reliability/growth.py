"""Growth of processes: their own memory over time, as a slope."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np


def own_kib(pid: int) -> float:
    """Anonymous memory of a process: files that it maps and others share are no growth of its own."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("RssAnon:")))


@dataclass
class Growth:
    """Samples of several processes.

    Parameters
    ----------
    clock
        Seconds of any origin.
    """

    processes: Mapping[str, int]
    clock: Callable[[], float] = time.monotonic
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample of every process."""
        self.samples.append((self.clock(), {name: own_kib(pid) for name, pid in self.processes.items()}))

    def slopes(self, *, after_s: float = 0.0, window_s: float = 0.0) -> dict[str, float]:
        """KiB a minute, of what came so long after the first sample.

        The median slope between the least samples of windows: what is taken for one block and given back is
        no growth, nor is one step.
        """
        begun = self.samples[0][0] + after_s
        late = [(at - begun, taken) for at, taken in self.samples if at >= begun]
        windows = [
            list(few) for _, few in groupby(late, lambda one: one[0] // window_s if window_s else one[0])
        ]
        minutes = np.array([few[0][0] / 60 for few in windows])
        found = {}
        for name in self.processes:
            least = np.array([min(taken[name] for _, taken in few) for few in windows])
            one, two = np.triu_indices(len(windows), 1)
            found[name] = float(np.median((least[two] - least[one]) / (minutes[two] - minutes[one])))
        return found
