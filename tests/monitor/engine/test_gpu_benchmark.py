"""``benchmarks.gpu`` runs on a bare machine with torch, and never claims a figure of a GPU without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.__main__ import main
from benchmarks.gpu._figures import Device, GpuFigure, table

ROOT = Path(__file__).parents[3]
ABSENT = (
    "alembic", "fastapi", "great_expectations", "httptools", "httpx", "jinja2", "msgspec", "onnxruntime",
    "opentelemetry", "peft", "PIL", "prometheus_client", "pydantic", "pydantic_settings", "rich", "sklearn",
    "sqlalchemy", "sqlmodel", "standardwebhooks", "starlette", "torchao", "transformers", "typer", "uvicorn",
)  # fmt: skip
BARE = f"import runpy, sys; sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
"""A module that is None in sys.modules cannot be imported."""
REMOTE = ("chat_model", "endpoint", "open_inference")
"""Kinds that ask a server, and bring what that needs; `loading` imports them for such models only."""
WORKER_SIDE = ("client", "groups", "metrics", "trunk_groups", "version_launch")
"""Files of the engine's room that run in the worker."""
IMPORT_ALL = f"""
import importlib, pkgutil
import outrider.dataops.model_kinds, outrider.monitor.engine
for package in (outrider.dataops.model_kinds, outrider.monitor.engine):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name.rpartition(".")[2] not in ("__main__", *{REMOTE!r}, *{WORKER_SIDE!r}):
            importlib.import_module(module.name)
"""


def run(module: str, *arguments: str) -> str:
    return f"sys.argv = {[module, *arguments]!r}; runpy.run_module({module!r}, run_name='__main__')"


def bare(code: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BARE + code]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=200)


def test_all_figures_come_from_a_bare_machine_and_none_has_a_target(tmp_path: Path) -> None:
    where = tmp_path / "figures.md"
    arguments = ["--device", "cpu", "--table", str(where)]
    done = bare(IMPORT_ALL + run("benchmarks.gpu", *arguments))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == [
        "gpu.fed", "gpu.overlap", "gpu.adapters_base", "gpu.adapters_fed_base", "gpu.adapters_sequential",
        "gpu.trunk", "gpu.on_device", "gpu.neighbour",
    ]  # fmt: skip
    for line in lines:
        assert (line["target"], line["meets"]) == (None, None)
        assert "CPU" in line["device"]
        assert line["value"] > 0
        assert line["ratio"] > 0
        if line["name"] != "gpu.neighbour":
            assert line["noise"] < 1e-4
            assert line["flips"] == 0
    assert "CPU, one thread, torch" in where.read_text(encoding="utf-8")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_asked_for_cuda_without_a_device_it_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    monkeypatch.setenv("CUDA_MPS_CLIENT_PRIORITY", "0")  # the command sets it where it is not there
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "no CUDA device" in said.err
    assert said.out == ""


def test_a_table_names_its_device_and_date_and_says_what_was_missed() -> None:
    figures = [
        GpuFigure("gpu.fed", 100.0, "rows/s", "static loop", 0.96, 0.95, 0.001, 0.02),
        GpuFigure("gpu.trunk", 3.0, "ms a batch", "stem and tops", 0.5, 0.85),
    ]
    card = Device("cuda", "NVIDIA Example", "2.11.0", "3.12.1", "2026-11-21")
    text = table(figures, card)
    assert "**Measured on NVIDIA Example, torch 2.11.0, Python 3.12.1, 2026-11-21.**" in text
    assert "| `gpu.fed` | 100.0 rows/s | static loop | 0.96 | 0.95 (met) | 0.001 | 2 % |" in text
    assert "| 0.5 | 0.85 (missed) | - | - |" in text
    processor = Device("cpu", "x86_64 CPU, one thread", "2.11.0", "3.12.1", "2026-11-21")
    assert "met" not in table(figures, processor)
    assert figures[0].line(processor)["target"] is None
