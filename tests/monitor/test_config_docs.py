"""docs/configuration.md names every setting, with section and default, and none that does not exist."""

import re
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from outrider.monitor.settings.config import Settings, load_settings

GUIDE = Path(__file__).parents[2] / "docs" / "configuration.md"
NAMES = {"models": "models.NAME", "judges": "judges.JUDGE", "challengers": "challengers.VERSION"}


def written(default: Any) -> str:
    """A default as the guide writes it, which is as TOML does."""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(written(item).strip('`') for item in default)}]`"
    if isinstance(default, dict):
        return "`{}`"
    return f'`"{default}"`' if isinstance(default, str) else f"`{default}`"


def settings_of(section: type[BaseModel] = Settings, prefix: str = "") -> dict[str, tuple[str, str]]:
    """Default, and what the section is about, by full key."""
    found: dict[str, tuple[str, str]] = {}
    inner: dict[str, tuple[str, str]] = {}
    for name, field in section.model_fields.items():
        if section is Settings and name == "base":
            continue
        kinds = [field.annotation, *get_args(field.annotation)]
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if tables:
            inner |= settings_of(tables[0], f"{prefix}{NAMES.get(name, name)}.")
            continue
        default = "required" if field.is_required() else written(field.get_default(call_default_factory=True))
        found[prefix + name] = default, section.__doc__ or ""
    return found | inner


def documented() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    text = GUIDE.read_text(encoding="utf-8").partition("## Environment")[0]
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        section = part.partition("\n")[0].strip("`[]")
        about = part.split("\n")[2]
        for key, default in re.findall(r"^\| `(\w+)` \| (.+?) \| \S", part, flags=re.MULTILINE):
            found[f"{section}.{key}"] = default, about
    return found


def test_every_setting_is_in_the_guide_with_its_default_and_no_other() -> None:
    assert documented() == settings_of()


def test_the_example_of_the_guide_is_a_configuration(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "outrider.toml").write_text(example, encoding="utf-8")
    assert list(load_settings(tmp_path / "outrider.toml").models) == ["churn"]
