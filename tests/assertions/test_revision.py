"""A revision names a judgement: the same in every process, another as soon as the judgement is another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.assertions import load_assertions

FILE = """
from outrider.assertions import assertion

ALLOWED = frozenset({"alpha", "beta", "gamma", "delta"})
LIMITS = {"age": 120}
NAMES = ["a", "b"]


def one(x):
    return x


STEPS = (one, max)


@assertion
def judged(batch):
    inner = lambda x: x > FLOOR
    return [inner(LIMITS["age"]) or bool(ALLOWED) or bool(NAMES) or bool(STEPS) for _ in batch.keys]


FLOOR = 3
"""


def revision(folder: Path, text: str, *, hash_seed: str = "0") -> str:
    (folder / "checks.py").write_text(text, encoding="utf-8")
    code = (
        "import sys; from outrider.assertions import load_assertions as f; print(f(sys.argv[1])[0].revision)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "checks.py")],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_revision_is_the_same_in_every_process(tmp_path: Path) -> None:
    assert revision(tmp_path, FILE, hash_seed="1") == revision(tmp_path, FILE, hash_seed="2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"age": 120', '"age": 90'),
        ('["a", "b"]', '["a"]'),
        ("FLOOR = 3", "FLOOR = 4"),
        ("return x\n", "return -x\n"),
    ],
)
def test_a_changed_constant_or_helper_is_a_new_revision(tmp_path: Path, old: str, new: str) -> None:
    revisions = []
    for name, text in (("before", FILE), ("after", FILE.replace(old, new))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "checks.py").write_text(text, encoding="utf-8")
        revisions.append(load_assertions(folder / "checks.py")[0].revision)
    assert revisions[0] != revisions[1]


WORDED = (
    FILE.replace(
        "def one(x):\n    return x\n", 'def one(x):\n    """Itself."""\n    # of no other\n    return (x)\n'
    )
    .replace(
        "def judged(batch):\n", 'def judged(batch):\n    """True throughout.\n\n    Owner: ann\n    """\n'
    )
    .replace("FLOOR = 3", "FLOOR = 3  # the lowest")
)


def test_revision_stays_where_comments_docstrings_and_layout_change(tmp_path: Path) -> None:
    assert WORDED.count('"""') == 4
    found = []
    for name, text in (("before", FILE), ("after", WORDED)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checks.py").write_text(text, encoding="utf-8")
        found.append(load_assertions(tmp_path / name / "checks.py")[0])
    assert found[0].revision == found[1].revision
    assert (found[1].description, found[1].owner) == ("True throughout.", "ann")


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("high = assertion(name='high')(lambda batch: batch.column('x') > 3)  # as agreed\n", True),
        ("high = assertion(name='high')(\n    lambda batch: batch.column('x') > 3,\n)\n", True),
        ("high = assertion(name='high')(lambda batch: batch.column('x') > 4)\n", False),
    ],
)
def test_revision_of_a_lambda_is_that_of_its_code(tmp_path: Path, text: str, is_same: bool) -> None:
    start = "from outrider.assertions import assertion\n"
    first = start + "high = assertion(name='high')(lambda batch: batch.column('x') > 3)\n"
    found = []
    for name, source in (("a", first), ("b", start + text)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checks.py").write_text(source, encoding="utf-8")
        found.append(load_assertions(tmp_path / name / "checks.py")[0].revision)
    assert (found[0] == found[1]) is is_same
