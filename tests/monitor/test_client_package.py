"""The client as a wheel of its own: one module, nothing of Outrider beside it, and it works."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from outrider.dataops.journal.journal import SqliteJournal
from tests.soak import PATIENCE_S

from .test_intake import key_of, process

ROOT = Path(__file__).parents[2]
CAPTURE = """
import sys
sys.path.insert(0, sys.argv[1])
import outrider_client
from outrider_client import Client, watch

client = Client(model="churn")

@watch(model="churn", client=client, entity="user")
def predict(age, user):
    return {"score": age / 100}

for age in range(20):
    predict(age, user="u7")
record_id = client.capture({"age": 99, "photo": b"PNG"}, {"score": 0.5}, id="labelled")
client.label(record_id, {"score": 1.0})
assert client.flush(100), client.counts
assert not any(name.partition(".")[0] == "outrider" for name in sys.modules)
assert not [path for path in sys.path if "site-packages" in path]
print(client.counts)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without the network, in a copy: building leaves folders behind."""
    copy = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "client", copy / "client", symlinks=True)
    for name in ("LICENSE", "outrider/monitor/client.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "--wheel-dir", str(copy), str(copy / "client")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    [path] = copy.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder that holds the wheel's files and no others."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--disable-pip-version-check", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def run_alone(folder: Path, code: str, **env: str) -> str:
    """Output of code in an interpreter with the standard library and this folder alone."""
    command = [sys.executable, "-I", "-S", "-c", code, str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER")} | env
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_one_module_and_requires_nothing(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if ".dist-info/" not in name] == ["outrider_client.py"]
    source = zipfile.ZipFile(wheel).read("outrider_client.py")
    assert source == (ROOT / "outrider" / "monitor" / "client.py").read_bytes()
    [metadata] = (name for name in names if name.endswith("/METADATA"))
    assert "Requires-Dist" not in zipfile.ZipFile(wheel).read(metadata).decode()


def test_its_version_is_that_of_outrider() -> None:
    versions = {
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
        for folder in (".", "client")
    }
    assert len(versions) == 1


def test_installed_alone_it_captures_into_a_real_intake(installed: Path, tmp_path: Path) -> None:
    with process(tmp_path) as (child, url):
        counts = run_alone(installed, CAPTURE, OUTRIDER_URL=url, OUTRIDER_KEY=key_of(tmp_path))
        child.terminate()
        assert child.wait(PATIENCE_S) == 0
    assert "error=0, acknowledged=22, queued=0" in counts
    journal = SqliteJournal(tmp_path / "outrider-data" / "journal.db")
    rows: dict[str, list[dict[str, Any]]] = {"records": [], "labels": []}
    for block in journal.read(0, limit=100):
        if block.kind in rows:
            rows[block.kind] += pa.ipc.open_stream(block.payload).read_all().to_pylist()
    journal.close()
    *watched, captured = rows["records"]
    assert [row["inputs.age"] for row in watched] == list(range(20))
    assert {row["entity"] for row in watched} == {"u7"}
    assert (captured["id"], captured["inputs.age"]) == ("labelled", 99)
    assert b"PNG" in repr(captured["inputs.photo"]).encode()
    [label] = rows["labels"]
    assert (label["id"], label["label.score"]) == ("labelled", 1.0)


def test_installed_alone_it_imports_within_60_ms(installed: Path) -> None:
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); began = time.process_time();"
        "import outrider_client; print(time.process_time() - began)"
    )
    assert min(float(run_alone(installed, code)) for _ in range(5)) <= 0.06


def test_turned_off_it_starts_nothing_and_keeps_nothing(installed: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\nimport json, threading, outrider_client as o\n"
        "c = o.Client(model='churn'); c.capture({'x': 1}, {}); c.label('a', {'x': 1})\n"
        "seen = [c.counts.offered, threading.active_count(), c.flush(0), 'http.client' in sys.modules]\n"
        "print(json.dumps(seen))"
    )
    assert json.loads(run_alone(installed, code, OUTRIDER_DISABLED="1")) == [0, 1, True, False]
