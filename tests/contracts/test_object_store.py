"""What every object store must do."""

import hashlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from outrider.dataops.payloads.objects import CorruptObject, LocalObjects, ObjectStore
from outrider.errors import NotFound

STORES: dict[str, Callable[[Path], ObjectStore]] = {"local": lambda folder: LocalObjects(folder / "objects")}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return STORES[request.param](tmp_path)


def test_what_is_put_can_be_got_under_its_sha256(store: ObjectStore) -> None:
    digest = store.put(b"weights")
    assert digest == hashlib.sha256(b"weights").hexdigest()
    assert store.get(digest) == bytes(store.mapped(digest)) == b"weights"
    assert store.has(digest)


def test_putting_twice_changes_nothing(store: ObjectStore) -> None:
    assert store.put(b"") == store.put(b"") == store.put_file(BytesIO())
    assert store.get(store.put(b"")) == bytes(store.mapped(store.put(b""))) == b""


def test_a_file_is_stored_from_where_it_stands(store: ObjectStore) -> None:
    content = bytes(range(256)) * 10_000
    file = BytesIO(b"head" + content)
    file.seek(4)
    assert store.get(store.put_file(file)) == content


def test_an_absent_object_is_not_found(store: ObjectStore) -> None:
    digest = "0" * 64
    assert not store.has(digest)
    with pytest.raises(NotFound, match=digest):
        store.get(digest)
    with pytest.raises(NotFound, match=digest):
        store.mapped(digest)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "abc"])
def test_only_digests_are_names(store: ObjectStore, name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        store.get(name)


def test_a_changed_file_is_never_returned(tmp_path: Path) -> None:
    local = LocalObjects(tmp_path)
    digest = local.put(b"right")
    (tmp_path / digest[:2] / digest).write_bytes(b"wrong")
    with pytest.raises(CorruptObject, match=digest):
        local.get(digest)
    with pytest.raises(CorruptObject, match=digest):
        local.mapped(digest)


def test_no_partial_file_remains_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    local = LocalObjects(tmp_path)
    with pytest.raises(OSError, match="No space"):
        local.put(b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_large_file_is_verified_again_once_it_has_changed(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    data = bytes(2_000_000)
    digest = objects.put(data)
    for _ in range(2):
        assert objects.mapped(digest) == data
    with objects.path(digest).open("r+b") as file:
        file.write(b"1")
    with pytest.raises(CorruptObject, match=digest):
        objects.mapped(digest)
