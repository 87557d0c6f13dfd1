"""A policy of the gate as a file: what it may hold, what is told of a bad one, and its digest."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outrider.errors import ConfigError
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.gate_policy import MOST_BYTES, frozen, read_policy
from outrider.monitor.settings.gate_sections import FrozenPolicy, GateSettings

WHOLE = """\
version = 1
held_out = "digits-heldout@final"
max_drop = 0.01
requires = ["labels", "suites"]
suites = ["test_digits"]
tests = ["test_noise"]
shadow_rows = 200
agreement = "close"

[[slices]]
name = "night"
where = { light = "night" }
max_drop = 0.0

[[slices]]
name = "camera 3"
held_out = "camera-3@2"

[[flags]]
assertion = "unsure"
max_share = 0.02

[latency]
p99_ms = 40
max_ratio = 1.2

[memory]
max_mb = 100

[rolling]
rows = 400
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "gate.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def configured(folder: Path, table: str) -> GateSettings:
    (folder / "outrider.toml").write_text(f"[models.m.gate]\n{table}", encoding="utf-8")
    return load_settings(folder / "outrider.toml").models["m"].gate


def test_a_file_holds_what_the_table_does_and_is_kept_with_its_digest(tmp_path: Path) -> None:
    written(tmp_path, WHOLE)
    found = configured(tmp_path, 'policy = "gate.toml"\n')
    assert isinstance(found, FrozenPolicy)
    assert (found.file, found.text, found.fault) == ("gate.toml", WHOLE, "")
    assert found.digest == hashlib.sha256(WHOLE.encode()).hexdigest()
    assert found.judging == ("digits-heldout@final", "camera-3@2")
    assert (found.slices[0].max_drop, found.slices[1].max_drop, found.latency.max_ratio) == (0.0, None, 1.2)
    assert FrozenPolicy.model_validate(found.model_dump(mode="json")) == found
    table = (
        WHOLE.removeprefix("version = 1\n")
        .replace("[[", "[[models.m.gate.")
        .replace("\n[l", "\n[models.m.gate.l")
        .replace("\n[r", "\n[models.m.gate.r")
        .replace("\n[m", "\n[models.m.gate.m", 2)
    )
    inline = configured(tmp_path, table.replace("models.m.gate.models.m.gate.", "models.m.gate."))
    assert inline == GateSettings(**found.model_dump(exclude={"file", "digest", "text", "fault"}))


def test_a_policy_of_the_configuration_has_a_digest_of_its_keys(tmp_path: Path) -> None:
    one, same, other = (
        frozen(configured(tmp_path, table))
        for table in ("max_drop = 0.02\n", "max_drop=0.020\n", "max_drop = 0.03\n")
    )
    assert one.digest == same.digest == hashlib.sha256(one.text.encode()).hexdigest()
    assert other.digest != one.digest
    assert frozen(one) is one


BAD = [
    ("version = 1\nmax_dorp = 0.1\n", "gate.toml, line 2: max_dorp: unknown key; did you mean 'max_drop'?"),
    ("version = 1\nmax_drop = nan\n", "gate.toml, line 2: max_drop: .*got nan"),
    ("version = 1\nmax_drop = inf\n", "gate.toml, line 2: max_drop: .*got inf"),
    ("version = 1\nmax_drop = 2\n", "gate.toml, line 2: max_drop: .*got 2"),
    ("version = 1\nmax_drop = true\n", "gate.toml, line 2: max_drop: a number expected, got true"),
    ("version = 1\nmax_drop = 'much'\n", "gate.toml, line 2: max_drop: .*got 'much'"),
    ("max_drop = 0.1\n", "gate.toml: version = 1 expected, got None"),
    ("version = 2\n", "gate.toml, line 1: version = 1 expected, got 2"),
    ("version = true\n", "line 1: version = 1 expected, got True"),
    ("version = 1\npolicy = 'other.toml'\n", "gate.toml, line 2: policy: a policy names no other file"),
    ("version = 1\ndigest = 'x'\n", "gate.toml, line 2: digest: unknown key"),
    ("version = 1\nmax_drop = = 1\n", r"gate.toml is no TOML: .*\(at line 2, column 12\)"),
    (b"version = 1\n# caf\xe9\n", "gate.toml, line 2: UTF-8 expected, got byte 0xe9"),
    (b"#" * (MOST_BYTES + 1), "gate.toml: 65,536 bytes at most expected, got 65,537"),
    ("version = 1\nx = " + "[" * 30_000, "gate.toml is no TOML"),
    ("version = 1\nagreement = 'same'\n", "gate.toml: .*agreement: set shadow_rows"),
    (
        "version = 1\nheld_out = 'h'\n[[slices]]\nname = 'a'\n",
        "line 3: slices.0: a: where or held_out expected",
    ),
    ("version = 1\n[[slices]]\nname = 'a'\nwhere = {x = 1}\n", "slices: a needs held_out"),
    (
        "version = 1\nheld_out = 'h'\n[[slices]]\nname = 'a'\nwhere = {x = 1}\n"
        "[[slices]]\nname = 'b'\nwhere = {x = 2}\nmax_dop = 0.1\n",
        "gate.toml, line 9: slices.1.max_dop: unknown key; did you mean 'max_drop'?",
    ),
    (
        "version = 1\nheld_out = 'h'\n" + "[[slices]]\nname = 'a'\nwhere = {x = 1}\n" * 2,
        "slices: a name for each expected, got a twice",
    ),
    (
        "version = 1\nshadow_rows = 1\n[[flags]]\nassertion = 'a'\nmax_share = 1.5\n",
        "line 5: flags.0.max_share: .*got 1.5",
    ),
    (
        "version = 1\nloss = 'macro_f1'\n[rolling]\n",
        "rolling: a loss of each row expected, macro_f1 is a figure",
    ),
    ("version = 1\n[rolling]\nrows = 10\n", "line 3: rolling.rows: .*got 10"),
    ("version = 1\n[rolling]\np = true\n", "line 3: rolling.p: a number expected, got true"),
    ("version = 1\n[latency]\np99_s = 1\n", "line 3: latency.p99_s: unknown key; did you mean 'p99_ms'?"),
]


@pytest.mark.parametrize(("text", "told"), BAD)
def test_a_bad_file_is_told_with_its_line_and_the_service_goes_on(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=told) as error:
        read_policy(path, "gate.toml")
    found = configured(tmp_path, 'policy = "gate.toml"\n')
    assert isinstance(found, FrozenPolicy)
    assert found.fault == str(error.value)
    assert found.shadow_rows == 0


KEYS = [*GateSettings.model_fields, "version", "digest", "x"]
VALUES = [
    "1",
    "nan",
    "-1",
    "true",
    "'a'",
    "[]",
    "[[]]",
    "{}",
    "{x = 1}",
    "[{name = 'a'}]",
    "1979-01-01",
    "9" * 5000,
]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.one_of(
        st.binary(max_size=50),
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=4).map(
            lambda pairs: "version = 1\n" + "".join(f"{key} = {value}\n" for key, value in pairs)
        ),
    )
)
def test_whatever_a_file_holds_it_is_a_policy_or_told_with_its_name(
    tmp_path: Path, content: str | bytes
) -> None:
    path = written(tmp_path, content)
    found = configured(tmp_path, 'policy = "gate.toml"\n')
    assert isinstance(found, FrozenPolicy)
    assert found.fault.startswith("gate.toml") or found.fault == ""
    assert found.fault or found.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gate\.toml cannot be read: No such file"):
        read_policy(tmp_path / "gate.toml", "gate.toml")
    (tmp_path / "folder.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("folder.toml", "pipe.toml"):
        with pytest.raises(ValueError, match=f"{name}: a file expected, got a folder or a device"):
            read_policy(tmp_path / name, name)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('policy = "gate.toml"\nmax_drop = 0.1\n', "policy and max_drop exclude each other"),
        (
            'policy = "gate.toml"\nheld_out = "x"\nauto_promote = false\n',
            "policy and auto_promote, held_out exclude .* move them to gate.toml",
        ),
        ('policy = "gate.py"\n', r"a file NAME\.toml expected, got 'gate\.py'"),
        ('agreement = "same"\n', "agreement: set shadow_rows, without live records nothing passes"),
    ],
)
def test_file_and_keys_exclude_each_other(tmp_path: Path, table: str, told: str) -> None:
    written(tmp_path, "version = 1\n")
    with pytest.raises(ConfigError, match=told):
        configured(tmp_path, table)
