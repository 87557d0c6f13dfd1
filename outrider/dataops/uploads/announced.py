"""Announcement of an uploaded version: kind, files and origin."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from outrider.dataops.model_kinds.content import ADAPTER_CONFIG, COUNTED
from outrider.dataops.model_kinds.folder_check import PICKLES
from outrider.dataops.payloads.folders import WrongFolder, check_names
from outrider.dataops.payloads.objects import is_digest
from outrider.errors import ValidationRefused

UploadKind = Literal["safetensors", "onnx", "hf", "adapter", "endpoint"]
_SINGLE = {"safetensors": ".safetensors", "onnx": ".onnx"}
_PARSED, _PARSED_BYTES = ("config.json", ".index.json"), 4_194_304
"""Files that the check parses, and their bounds."""
_TEXTS, _TEXT_BYTES = (".json", ".txt", ".model", ".jinja"), 67_108_864
"""Files that are read whole when their content is checked, and their bound."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_RUNS_CODE = re.compile(r"\.(bin|pt|pth|pkl|pickle|joblib|ckpt|npy|npz|py|so|h5)$")


class WrongUpload(ValidationRefused):
    """Content that no version can be made of. ``facts`` name file and tensor."""

    def __init__(self, why: str, **facts: object) -> None:
        super().__init__(why)
        self.facts = facts


@dataclass(frozen=True, slots=True)
class AnnouncedFile:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Announced:
    kind: UploadKind
    files: tuple[AnnouncedFile, ...] = ()
    url: str | None = None
    dataset: str | None = None
    """``name@number`` that it learned from."""
    note: str = ""
    inputs: tuple[str, ...] = ()
    """Those of the champion by default."""
    classes: tuple[int | str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Announced":
        files = tuple(AnnouncedFile(**file) for file in values["files"])
        lists = {name: tuple(values[name]) for name in ("inputs", "classes")}
        return cls(**{**values, "files": files, **lists})


def check_announced(one: Announced, *, max_bytes: int) -> None:
    if (one.url is None) == (one.kind == "endpoint"):
        raise WrongUpload(f"url: {'an address expected' if one.url is None else 'only of an endpoint'}")
    if one.kind == "endpoint":
        if one.files:
            raise WrongUpload("files: an endpoint has none")
        return
    names = [file.name for file in one.files]
    try:
        check_names(names)
    except WrongFolder as error:
        raise WrongUpload(f"files: {error}") from None
    if len(set(names)) < len(names):
        raise WrongUpload("files: every name once expected")
    for file in one.files:
        _check_file(file, max_bytes)
    _check_kind(one, names)


def _check_file(file: AnnouncedFile, max_bytes: int) -> None:
    if not is_digest(file.sha256):
        raise WrongUpload(f"files: {file.name}: sha256 of 64 lower-case hex digits expected", file=file.name)
    if not 1 <= file.bytes <= max_bytes:
        raise WrongUpload(
            f"files: {file.name}: 1 to {max_bytes} bytes expected (limits.upload_bytes), got {file.bytes}",
            file=file.name,
        )
    most = _PARSED_BYTES if file.name.endswith(_PARSED) else _TEXT_BYTES
    if file.name.endswith(_TEXTS) and file.bytes > most:
        raise WrongUpload(
            f"files: {file.name}: at most {most} bytes expected, got {file.bytes}", file=file.name
        )
    if file.name in PICKLES or _RUNS_CODE.search(file.name.lower()):
        raise WrongUpload(
            f"files: {file.name}: a pickle or code is never read: save weights as safetensors or ONNX",
            file=file.name,
        )


def _check_kind(one: Announced, names: list[str]) -> None:
    end = _SINGLE.get(one.kind)
    if end is not None and (len(names) != 1 or not names[0].endswith(end)):
        raise WrongUpload(f"files: one file NAME{end} expected of kind {one.kind}, got {', '.join(names)}")
    if one.kind == "adapter" and set(names) != {ADAPTER_CONFIG, ADAPTER_WEIGHTS}:
        raise WrongUpload(
            f"files: {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} expected of an adapter, got {', '.join(names)}"
        )
    if one.kind == "hf":
        if strange := [name for name in names if not name.endswith(COUNTED) or "/" in name]:
            raise WrongUpload(
                f"files: {strange[0]}: a model folder is uploaded as its files NAME{'|'.join(COUNTED)}",
                file=strange[0],
            )
        if ADAPTER_CONFIG in names:  # transformers would open the base that it names
            raise WrongUpload(
                f"files: {ADAPTER_CONFIG}: an adapter is uploaded as kind adapter", file=ADAPTER_CONFIG
            )
        if "config.json" not in names:
            raise WrongUpload("files: config.json expected of a model folder")
