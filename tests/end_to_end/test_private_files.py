"""Files of a service: from the first moment its owner alone may read them."""

import os
import stat
from pathlib import Path

import pytest

from outrider.dataops.access.private_files import make_private

from .loop import Loop
from .service import Service, outrider, wait_until, write_project


def readable_by_others(folder: Path) -> list[str]:
    """Paths of a folder that group or others have any right on."""
    return [
        f"{path.relative_to(folder.parent)} {stat.S_IMODE(path.lstat().st_mode):o}"
        for path in (folder, *folder.rglob("*"))
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    ]


def umask_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Umask"))


def test_no_path_of_a_service_that_went_round_the_loop_is_open(loop: Loop, tmp_path: Path) -> None:
    """After traffic, datasets, labels, a retrain, its promotion, and a backup."""
    service = loop.service
    assert readable_by_others(service.folder) == []
    names = {path.name for path in service.folder.rglob("*")}
    assert {"journal.db", "journal.db-wal", "state.db", "state.db-wal", "key", "outrider.toml"} <= names
    assert len(list((service.folder / "objects").rglob("*"))) > 3
    done = outrider(service.config.parent, "backup", str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    assert readable_by_others(tmp_path / "copy") == []


def test_every_process_makes_private_files_and_an_open_folder_is_closed_at_the_start(tmp_path: Path) -> None:
    config = write_project(tmp_path / "project")
    folder = config.parent / "outrider-data"
    (folder / "objects" / "ab").mkdir(parents=True)
    (folder / "objects" / "ab" / "cd").write_text("weights")
    (folder / "objects" / "ab" / "cd").chmod(0o666)
    folder.chmod(0o755)
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    outside.chmod(0o644)
    (folder / "link").symlink_to(outside)
    with Service(config, is_new=True) as service:
        service.post([{"id": "a", "inputs": {"x": 0.95}}])
        service.wait_judged(1)
        wait_until(lambda: "host" in service.processes(), "the host", service)
        found = service.processes()
        assert {role: umask_of(pid) for role, pid in found.items()} == dict.fromkeys(found, "0077")
        assert readable_by_others(folder) == []
        assert stat.S_IMODE(outside.stat().st_mode) == 0o644


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_a_path_that_cannot_be_changed_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "b").write_text("")
    (tmp_path / "b").chmod(0o755)
    tmp_path.chmod(0o700)
    whole = os.chmod

    def refuse(path: object, *given: object, **more: object) -> None:
        if str(path).endswith("a"):
            raise PermissionError(1, "Operation not permitted")
        whole(path, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "chmod", refuse)
    assert make_private(tmp_path) == 1
    assert "/a can be read by others" in caplog.text
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700
