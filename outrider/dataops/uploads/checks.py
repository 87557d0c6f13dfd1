"""Checks of received content, by kind."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from outrider.dataops.model_kinds.folder_check import adapter_problems, folder_problems, foreign_files
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models.registry import Model

from .announced import ADAPTER_WEIGHTS, Announced, WrongUpload
from .check_process import check_apart, check_onnx
from .contents import check_contents
from .tensor_headers import TensorForm, check_finite, check_low_rank, check_same, merged, tensor_forms


@dataclass(frozen=True, slots=True)
class ChampionFiles:
    row: Model
    source: Source
    weights: Path | None
    folder: Path | None

    @property
    def tensors(self) -> dict[str, TensorForm] | None:
        if self.source.kind not in ("torch", "hf"):
            return None
        if self.weights is not None:
            return tensor_forms(self.weights)
        return None if self.folder is None else merged(sorted(self.folder.glob("*.safetensors")))


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    source: Source
    """As registered, but for its folder."""
    weights: str | None = None
    """Announced file of weights; None for those of the champion, or none."""
    files: Mapping[str, Path] = field(default_factory=dict)


def check_digests(announced: Announced, parts: Mapping[str, Path], drop: Callable[[str], None]) -> None:
    """Refuse incomplete files, and drop files with another digest."""
    for file in announced.files:
        size = parts[file.name].stat().st_size if parts[file.name].exists() else 0
        if size != file.bytes:
            raise WrongUpload(
                f"{file.name}: {file.bytes} bytes announced, {size} received: send the rest first",
                file=file.name, expected=file.bytes, got=size,
            )  # fmt: skip
    for file in announced.files:
        digest = sha256_of(parts[file.name])
        if digest != file.sha256:
            drop(file.name)
            raise WrongUpload(
                f"{file.name}: sha256 {file.sha256} announced, {digest} received: send it again",
                file=file.name, expected=file.sha256, got=digest,
            )  # fmt: skip


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checked(
    announced: Announced, parts: Mapping[str, Path], champion: ChampionFiles, default: Source, stage: Path
) -> CheckedUpload:
    """``default`` has inputs and classes that neither announcement nor champion name."""
    check_contents(announced, parts)
    known = champion.source
    declared = replace(
        known,
        inputs=announced.inputs or known.inputs or default.inputs,
        classes=announced.classes or known.classes or default.classes,
        adapter=None,
        adapted_from=None,
        shares=(),
        recipe=(),
        kept={},
        is_uploaded=False,
    )
    if announced.kind == "safetensors":
        return _safetensors(announced, parts, champion)
    if announced.kind == "onnx":
        return _onnx(announced, parts, champion, declared, stage)
    if announced.kind == "endpoint":
        assert announced.url is not None
        # Nothing of the champion's endpoint goes there: key and options are the configuration's at each load.
        endpoint = replace(declared, kind="endpoint", reference=announced.url, options={}, is_uploaded=True)
        return CheckedUpload(endpoint)
    for file in announced.files:
        os.link(parts[file.name], stage / file.name)
        if file.name.endswith(".safetensors"):
            check_finite(stage / file.name, tensor_forms(stage / file.name))
    files = {file.name: stage / file.name for file in announced.files}
    if announced.kind == "adapter":
        return _adapter(files, champion, stage)
    return _folder(files, champion, declared, stage)


def _safetensors(announced: Announced, parts: Mapping[str, Path], champion: ChampionFiles) -> CheckedUpload:
    (file,) = announced.files
    source, theirs = champion.source, champion.tensors
    if source is None or theirs is None:
        what = "none" if source is None else source.kind
        raise WrongUpload(
            f"kind: safetensors are weights for the architecture of the champion, which is of kind {what}: "
            "upload onnx, hf or endpoint",
            expected="a champion of tensors", got=what,
        )  # fmt: skip
    if source.adapter is not None or "adapter" in source.kept:
        raise WrongUpload(
            "kind: the champion is a base with an adapter: upload an adapter, or a whole folder as hf"
        )
    own = tensor_forms(parts[file.name], name=file.name)
    check_same(own, theirs, file=file.name, of=champion.row.id)
    check_finite(parts[file.name], own, name=file.name)
    return CheckedUpload(replace(source, adapted_from=champion.row.id, shares=()), weights=file.name)


def _onnx(
    announced: Announced, parts: Mapping[str, Path], champion: ChampionFiles, declared: Source, stage: Path
) -> CheckedUpload:
    (file,) = announced.files
    os.link(parts[file.name], stage / file.name)
    is_same = champion.source.kind == "onnx"
    options = dict(declared.options) if is_same else {}
    task = declared.task if declared.task in ("classification", "embedding", "other") else "other"
    source = replace(declared, kind="onnx", reference=file.name, task=task, options=options)
    theirs = champion.weights if is_same else None
    check_onnx(stage / file.name, source, champion=theirs, of=champion.row.id)
    return CheckedUpload(source, weights=file.name)


def _folder(
    files: Mapping[str, Path], champion: ChampionFiles, declared: Source, stage: Path
) -> CheckedUpload:
    if problems := folder_problems(stage, declared.task):
        raise WrongUpload("; ".join(problems).replace(f"{stage}/", "").replace(str(stage), "the folder"))
    is_same = champion.source.kind == "hf"
    options = dict(declared.options) if is_same else {}
    if len(declared.inputs) not in (1, 2):
        raise WrongUpload(f"inputs: one field with a text, or two, expected, got {list(declared.inputs)}")
    if problem := foreign_files(stage):
        raise WrongUpload(problem)
    source = replace(declared, kind="hf", reference=f"{champion.row.model}, uploaded", options=options)
    check_apart("hf", stage, source)
    return CheckedUpload(source, files=files)


def _adapter(files: Mapping[str, Path], champion: ChampionFiles, stage: Path) -> CheckedUpload:
    if problems := adapter_problems(stage):
        raise WrongUpload("; ".join(problems).replace(f"{stage}/", ""))
    base = champion.tensors
    if base is None:
        raise WrongUpload("kind: an adapter is laid over a champion of tensors, which this model has none of")
    own = tensor_forms(files[ADAPTER_WEIGHTS])
    check_low_rank(own, base, file=ADAPTER_WEIGHTS, of=champion.row.id)
    check_apart("adapter", stage, champion.source)
    kept = dict(champion.source.kept)
    kept.pop("adapter", None)
    source = replace(champion.source, adapter=None, adapted_from=champion.row.id, shares=(), kept=kept)
    return CheckedUpload(source, files=files)
