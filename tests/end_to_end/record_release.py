"""Records a data folder of an earlier release, with a backlog and as a crash left it.

    git worktree add ../earlier <commit>
    python -m tests.end_to_end.record_release ../earlier tests/end_to_end/data/journal-1-state-0005.tar.xz

The service of that checkout runs for a few seconds; its key and its ``run/`` folder are left out.
"""

import argparse
import json
import os
import signal
import tarfile
import tempfile
import time
from pathlib import Path

from .service import Service, write_project


def main() -> None:
    """Entry of the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("archive", type=Path)
    options = parser.parse_args()
    archive, checkout = options.archive.resolve(), options.checkout.resolve()
    os.chdir(checkout)  # `python -m outrider` takes the package from here
    with tempfile.TemporaryDirectory() as folder:
        config = write_project(Path(folder, "project"))
        with Service(config, is_started=True, env={"PYTHONPATH": str(checkout)}) as service:
            told = fill(service)
        data = config.parent / "outrider-data"
        (data / "told.json").write_text(json.dumps(told))
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(data.rglob("*")):
                name = path.relative_to(data)
                if path.is_file() and name.parts[0] not in ("run", "key", "key.ingest"):
                    packed.add(path, f"outrider-data/{name}", filter=plain)


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same entry without who made it and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def fill(service: Service) -> dict[str, object]:
    """Judged blocks, labels, a review, a suspension, a block that is not judged; then kill it."""
    for name in ("a", "b"):
        rows = [
            {"id": f"{name}{n}", "inputs": {"x": n / 20}, "entity": f"e{n % 3}", "attrs": {"device": "d"}}
            for n in range(20)
        ]
        assert service.post(rows).status_code == 202
    labels = [{"model": "toy", "id": f"a{n}", "label": {"label": int(n > 9)}} for n in range(5)]
    assert service.client.post("/v1/labels", json=labels).status_code == 202
    service.wait_judged(40)
    while service.count("labels") < 5:
        time.sleep(0.1)
    flag = service.client.get("/v1/flags", params={"model": "toy"}).json()["flags"][0]["id"]
    assert service.client.post("/v1/reviews", json={"flag": flag, "is_error": True}).status_code == 201
    suspended = service.client.post("/v1/assertions/toy/unsure/suspend", json={"reason": "noisy"})
    assert suspended.status_code == 200
    time.sleep(1)
    processes = service.processes()
    os.kill(processes["worker"], signal.SIGSTOP)
    late = [{"id": f"late{n}", "inputs": {"x": n / 20}, "attrs": {"device": "d"}} for n in range(20)]
    assert service.post(late).status_code == 202
    for pid in processes.values():
        os.kill(pid, signal.SIGKILL)
    assert service.process is not None
    service.process.wait()
    (revision,) = service.query("SELECT version_num FROM alembic_version")[0]
    return {
        "revision": revision,
        "records": service.count("records"),
        "flags": service.query("SELECT count(*) FROM flag")[0][0],
        "ids": sorted(row[0] for row in service.query("SELECT id FROM flag")),
        "flag": flag,
        "backlog": 20,
    }


if __name__ == "__main__":
    main()
