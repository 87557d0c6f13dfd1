"""Project with the systems of a comparison and the pairs to label."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from outrider.errors import ConfigError

from .model_checks import challenger_problems, source_problems
from .output import write_file

if TYPE_CHECKING:
    from outrider.assertions import Batch

HEAD = "# Written by outrider compare --keep, and again by its next run."
_MODEL = "compared"
_CHAT = "/chat/completions"


@dataclass(frozen=True, slots=True)
class ComparedSystems:
    """Systems of a comparison. ``production`` None: recorded answers; ``question`` None: no traffic."""

    production: str | None
    candidates: Sequence[str]
    question: "Batch | None"
    margin: float
    production_key_env: str = "OUTRIDER_MODEL_KEY"
    candidate_key_env: str = "OUTRIDER_CANDIDATE_KEY"
    candidate_model: str | None = None
    agree: Sequence[str] = ()


def write_project(folder: Path, systems: ComparedSystems, found: Mapping[str, Any]) -> None:
    """Write ``outrider.toml`` and ``pairs.jsonl`` for a report; a user's configuration stays."""
    pairs = "".join(json.dumps(pair, ensure_ascii=False, default=str) + "\n" for pair in _pairs(found))
    write_file(folder / "pairs.jsonl", pairs)
    path = folder / "outrider.toml"
    if not path.exists() or path.read_text(encoding="utf-8").startswith(HEAD):
        write_file(path, _checked(path, systems))


def keep_comparison(folder: Path, report: str) -> str:
    """Store a report (JSON) in the project; return its page's path."""
    from outrider.dataops.comparisons import Comparisons, read_report
    from outrider.dataops.state.database import now_us
    from outrider.monitor.settings.config import load_settings

    data = load_settings(folder / "outrider.toml").data_folder
    try:
        return f"/compare/{Comparisons(data).keep(read_report(report.encode()), now_us=now_us())}"
    except OSError as error:
        raise ConfigError(f"{data} cannot be written: {error.strerror or error}") from None


def _pairs(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Differing pairs as JSON lines, sides in the order of the page, with labels so far."""
    from outrider.monitor.compare.pair_texts import question_of, shuffled

    for candidate in found["candidates"]:
        for pair in candidate["to_label"]:
            a_is, b_is = shuffled(pair["id"])
            sides = {"A": pair[a_is], "B": pair[b_is], "A_is": a_is, "right": pair["right"]}
            yield {"candidate": candidate["name"], "id": pair["id"], "question": question_of(pair)} | sides


def _checked(path: Path, systems: ComparedSystems) -> str:
    """Configuration in which sections that ``check-config`` refuses are comments with the reason."""
    from outrider.monitor.settings.config import load_settings

    refused: dict[str, str] = {}
    write_file(path, _text(path.parent, systems, refused))
    settings = load_settings(path)
    model = settings.models[_MODEL]
    if problem := next(source_problems(settings, model), None):
        refused["production"] = problem
    for version, challenger in model.challengers.items():
        if problem := next(challenger_problems(settings, model, challenger), None):
            refused[version] = problem
    return _text(path.parent, systems, refused)


def _text(folder: Path, systems: ComparedSystems, refused: Mapping[str, str]) -> str:
    """Configuration file; a system that is refused or cannot be configured becomes a comment."""
    kinds = [each for each in (systems.production, *systems.candidates) if each is not None]
    task = next(filter(None, (_task(each, systems) for each in kinds)), "classification")
    lines = [
        HEAD,
        "# `outrider serve` goes on with the comparison, on mirrored traffic.",
        "# Without the first line the file is yours: it is not written again.",
        "",
        f"[models.{_MODEL}]",
        f"task = {_toml(task)}",
    ]
    if systems.production is None:
        lines.append("# Production was not asked: what it answered comes with the records.")
    else:
        lines += _section(systems.production, "production", folder, systems, refused)
    lines += ["", f"[models.{_MODEL}.shadow]", f"agreement = {1.0 - systems.margin:.6g}"]
    agree = [each for each in systems.agree if each != "embedding"]
    lines += [f"agree = {_toml(agree)}"] if agree else []
    if len(agree) < len(systems.agree):
        lines.append("# --agree embedding cannot be set here: a service embeds no texts.")
    if _request(systems) is not None:
        lines += ["", f"[models.{_MODEL}.intake]", "keep_request = true", 'answers = "joined"']
        if name := _called(systems):
            lines.append(f"request_models = {_toml([name])}")
    for version, text in _versions(systems.candidates):
        lines += ["", f"[models.{_MODEL}.challengers.{_toml(version)}]"]
        section = _section(text, version, folder, systems, refused)
        if all(line.startswith("#") for line in section):
            lines[-1] = f"# {lines[-1]}"
        lines += section
    return "\n".join(lines) + "\n"


def _section(
    text: str, version: str, folder: Path, systems: ComparedSystems, refused: Mapping[str, str]
) -> list[str]:
    """Configuration lines of a system, or a comment with the reason why it has none."""
    try:
        if version in refused:
            raise ConfigError(refused[version])
        settings = _settings(text, folder, systems, is_production=version == "production")
    except (ConfigError, OSError) as error:
        why = " ".join(str(error).split())
        return [f"# {json.dumps(text, ensure_ascii=False)} cannot be configured here: {_comment(why)}"]
    return [f"{name} = {_toml(value)}" for name, value in settings.items()]


def _settings(text: str, folder: Path, systems: ComparedSystems, *, is_production: bool) -> dict[str, Any]:
    from outrider.monitor.compare.askers import PROMPTS

    key = systems.production_key_env if is_production else systems.candidate_key_env
    if "://" in text:
        name = None if is_production else systems.candidate_model
        return _endpoint(text, systems, key, {"model": name or _called(systems)})
    if text.lower().endswith(PROMPTS):
        prompt = Path(text).read_text(encoding="utf-8").strip()
        name = systems.candidate_model or _called(systems)
        more = {"model": name, "system": prompt}
        return _endpoint(systems.production or "", systems, systems.production_key_env, more)
    return _local(text, folder, systems)


def _endpoint(url: str, systems: ComparedSystems, key: str, more: Mapping[str, str]) -> dict[str, Any]:
    path = urlsplit(url).path.rstrip("/")
    options: dict[str, str] = {} if key == "OUTRIDER_MODEL_KEY" else {"key_env": key}
    if "/v2/models/" in path or "/v1/models/" in path:
        found = {"endpoint": url.rstrip("/").removesuffix("/infer"), "inputs": _inputs(systems)}
        return found | ({"options": options} if options else {})
    if path.endswith("/completions") and not path.endswith(_CHAT):
        raise ConfigError("the service asks chat/completions, not completions")
    base = url.rstrip("/").removesuffix(_CHAT)
    base = base if path else f"{base}/v1"
    options |= {name: value for name, value in more.items() if value}
    return {"endpoint": f"{base}{_CHAT}", "inputs": ["messages"], "options": options}


def _local(text: str, folder: Path, systems: ComparedSystems) -> dict[str, Any]:
    from outrider.monitor.compare.local_asker import local_model, text_field, with_fields

    production = systems.production
    base = None if production is None or "://" in production else Path(production).resolve()
    model = local_model(text, Path.cwd(), base=base)
    [source, *_] = model.sources
    if source.kind == "function":
        file, _, name = source.reference.rpartition(":")
        return {"predictor": f"{_relative(file, folder)}:{name}", "inputs": _inputs(systems)}
    if source.kind == "onnx":
        return {"onnx": _relative(source.reference, folder), "inputs": _inputs(systems)}
    fields = [] if systems.question is None else [text_field(with_fields(systems.question), text)]
    found: dict[str, Any] = {"folder": _relative(source.reference, folder), "inputs": fields}
    return found | ({"adapter": _relative(source.adapter, folder)} if source.adapter else {})


def _task(text: str, systems: ComparedSystems) -> str | None:
    """Task of a system; None if any task will do."""
    from outrider.monitor.compare.askers import PROMPTS
    from outrider.monitor.compare.local_asker import local_model

    if "/v2/models/" in text or "/v1/models/" in text:
        return "other"
    if "://" in text or text.lower().endswith(PROMPTS) or _request(systems) is not None:
        return "generation"
    try:
        [source, *_] = local_model(text, Path.cwd()).sources
    except ConfigError:
        return None
    return None if source.kind == "function" else source.task


def _inputs(systems: ComparedSystems) -> list[str]:
    names = [] if systems.question is None else systems.question.names
    return [name.removeprefix("inputs.") for name in names if name.startswith("inputs.")]


def _request(systems: ComparedSystems) -> Mapping[str, Any] | None:
    """Recorded request of the question; None if it is a record of fields."""
    from outrider.monitor.compare.questions import REQUEST

    if systems.question is None or not systems.question.has(REQUEST):
        return None
    found: Mapping[str, Any] = json.loads(systems.question.arrow(REQUEST)[0].as_py())
    return found


def _called(systems: ComparedSystems) -> str:
    """Model name in recorded requests; empty if there is none."""
    return str((_request(systems) or {}).get("model") or "")


def _versions(candidates: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Unique version name of each candidate, with the candidate's text."""
    taken = {"production"}
    for text in candidates:
        last = urlsplit(text).netloc if "://" in text else Path(Path(text).name.rpartition(":")[2]).stem
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", last).strip("-.")
        name = (name or "candidate")[:40]
        number = next(n for n in range(1, len(candidates) + 2) if _numbered(name, n) not in taken)
        taken.add(_numbered(name, number))
        yield _numbered(name, number), text


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _relative(path: str, folder: Path) -> str:
    """Path relative to a configuration in ``folder``."""
    return os.path.relpath(Path(path).resolve(), folder.resolve())


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_toml(each)}' for name, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
