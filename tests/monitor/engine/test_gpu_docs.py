"""What docs/gpu.md shows runs as it stands there, and it does not claim what was not measured."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import torch

from outrider.assertions import Batch, Checker
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.device import CpuDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Alone, LoadedVersion, Segment
from outrider.monitor.engine.on_device import checks_of, watched
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sections import WorkerSettings

PAGE = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_its_settings_are_settings(tmp_path: Path) -> None:
    worker, options = (tomllib.loads(block) for block in blocks("toml"))
    assert Settings(**worker, base=tmp_path).worker.dtype == "bfloat16"
    assert options["models"]["signs"]["options"] == {"on_device": ["checks.py:doubtful"]}


def test_its_assertion_flags_what_its_function_says_on_the_device(tmp_path: Path) -> None:
    on_device, on_cpu = blocks("python")
    (tmp_path / "checks.py").write_text(on_device, encoding="utf-8")
    names: dict[str, object] = {}
    exec(on_cpu, names)
    torch.manual_seed(0)
    runner = TorchRunner(torch.nn.Linear(1, 3), inputs=["x"], classes=[0, 1, 2])
    source = Source("torch", "model.py:build", options={"on_device": ["checks.py:doubtful"]})
    name = ("signs", "1")
    loaded = LoadedVersion(name, source, runner, checks=checks_of(source, tmp_path))
    executor = watched(Alone(name, runner), {name: loaded})
    records = Batch.from_columns({"inputs.x": np.linspace(-4, 4, 20)}, model="signs")
    rows = executor.encode(name, records)
    said = CpuDevice().fly(executor, rows, [Segment(name, 0, rows.count)]).land()[0]
    outputs = executor.decode(name, said)
    answered = records.with_columns({f"outputs.{field}": values for field, values in outputs.items()})
    flags = Checker([names["doubtful"]]).check(answered)  # type: ignore[list-item]  # from the page
    fired = {int(row) for row in np.flatnonzero(outputs["margin"] < 0.2)}
    assert 0 < len(fired) < 20
    assert len(flags) == len(fired)


def test_it_says_plainly_that_nothing_was_measured_on_a_gpu() -> None:
    assert PAGE.count("GPU figures are not measured") == 2


def test_options_of_a_device_are_settings_of_the_worker() -> None:
    settings = WorkerSettings().model_dump()
    for name, value in json.loads(DeviceOptions().to_json()).items():
        assert name == "graphs" or settings[name] == value
