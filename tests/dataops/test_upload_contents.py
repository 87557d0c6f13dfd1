"""Content of uploaded files, whatever their names say."""

import io
import json
import os
import pickle
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.dataops.uploads.announced import Announced, AnnouncedFile, WrongUpload, check_announced
from outrider.dataops.uploads.contents import check_contents

NAMES = (
    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "tokenizer.json", "vocab.json",
    "config.json", "vocab.txt", "merges.txt", "chat_template.jinja",
)  # fmt: skip


def piece(text: str) -> bytes:
    inner = b"\x0a" + bytes([len(text.encode())]) + text.encode() + b"\x15\x00\x00\x80\xbf" + b"\x18\x02"
    return b"\x0a" + bytes([len(inner)]) + inner


MODEL = piece("<unk>") + piece("▁the") + b"\x12\x03\x1a\x01x" + b"\x1a\x00"
HONEST = {
    "tokenizer.model": MODEL,
    "spiece.model": MODEL,
    "qwen.model": b"IQ== 0\nIg== 1\n",
    "tokenizer.json": json.dumps({"model": {"vocab": {"ä": 0}}}, ensure_ascii=False).encode(),
    "added_tokens.json": b" []\n",
    "config.json": b'{"time_step_limit": [0.0, Infinity], "a": "-Infinity \\" NaN", "b": [NaN, -Infinity]}',
    "vocab.txt": "[PAD]\ncat\ndog\n.\nÄ\n(\n".encode(),
    "merges.txt": b"#version: 0.2\n\xc4\xa0 t\n",
    "chat_template.jinja": b"{{ messages }}",
}


class Runs:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("data.pkl", pickle.dumps(Runs()))
    return file.getvalue()


def length(data: bytes) -> bytes:
    return bytes([len(data) % 128 + 128, len(data) // 128])


PICKLES = {f"pickle {protocol}": pickle.dumps(Runs(), protocol) for protocol in range(6)}
HOSTILE = PICKLES | {
    "archive": archive(),
    "archive behind a model": MODEL + b"\xc2\x3e" + length(archive()) + archive(),
    "script": b"#!/bin/sh\ntrue\n",
    "program": b"\x7fELF" + bytes(100),
    "text with a NUL": b"a\0b",
    "latin-1": b"\xe4\n",
    "many operations": b"N0" * 60_000 + pickle.dumps(Runs(), 0),
}  # fmt: skip


def refused(folder: Path, files: dict[str, bytes]) -> str:
    """Reason against the files, empty for none."""
    parts = {}
    for number, (name, data) in enumerate(files.items()):
        parts[name] = folder / f"{number}.part"
        parts[name].write_bytes(data)
    announced = [AnnouncedFile(name, len(data), sha256(data).hexdigest()) for name, data in files.items()]
    try:
        check_contents(Announced("hf", tuple(announced)), parts)
    except WrongUpload as error:
        return str(error)
    return ""


def test_contents_take_files_that_are_what_they_are_called(tmp_path: Path) -> None:
    assert refused(tmp_path, HONEST) == ""


@pytest.mark.parametrize("what", HOSTILE)
def test_contents_refuse_pickles_archives_and_programs_under_every_name(tmp_path: Path, what: str) -> None:
    for name in NAMES:
        assert "expected, got" in refused(tmp_path, {name: HOSTILE[what]}), name


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 20, b"\x12\x00", b'{"a": 1}',
        piece("a")[:-1], piece("a") + b"\x08\x01",
    ],
)  # fmt: skip
def test_contents_refuse_a_tokenizer_that_is_no_sentencepiece_model(tmp_path: Path, data: bytes) -> None:
    assert "a sentencepiece model expected" in refused(tmp_path, {"tokenizer.model": data})


@pytest.mark.parametrize("data", [b"", b"{", b"1", b'"text"', b"{} {}", b"[" * 100_000, b"{'a': 1}"])
def test_contents_refuse_text_that_is_no_json(tmp_path: Path, data: bytes) -> None:
    assert "a JSON object or list expected" in refused(tmp_path, {"tokenizer.json": data})


@given(data=st.binary(max_size=200), name=st.sampled_from(NAMES))
def test_contents_refuse_or_take_any_bytes(
    data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    refused(tmp_path_factory.getbasetemp(), {name: data})


def test_announcement_bounds_text_files_and_refuses_an_adapter_in_a_folder() -> None:
    def announced(name: str, size: int) -> Announced:
        files = (AnnouncedFile("config.json", 2, "0" * 64), AnnouncedFile(name, size, "0" * 64))
        return Announced("hf", files)

    check_announced(announced("tokenizer.json", 67_108_864), max_bytes=2**40)
    with pytest.raises(WrongUpload, match=r"tokenizer\.model: at most 67108864 bytes expected, got 67108865"):
        check_announced(announced("tokenizer.model", 67_108_865), max_bytes=2**40)
    with pytest.raises(WrongUpload, match="uploaded as kind adapter"):
        check_announced(announced("adapter_config.json", 2), max_bytes=2**40)
