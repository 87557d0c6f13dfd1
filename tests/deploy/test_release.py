"""A release: complete, the same from the same commit, and described to the last package.

It is built from the last commit, as `deploy/release.py` does: what is not committed is not seen.
"""

import hashlib
import re
import subprocess
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from deploy import release
from outrider.parts import PARTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return release.bill_of_materials(ROOT / "pyproject.toml")


def tracked(folder: str) -> set[str]:
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", folder]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_wheel_holds_every_tracked_file_and_no_other(built: Path) -> None:
    [wheel] = built.glob("outrider-*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert len(names) > 700
    assert names == tracked("outrider")


def test_the_sdist_holds_what_builds_and_explains_it(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert tracked("outrider") | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_the_client_is_a_wheel_without_dependencies(built: Path) -> None:
    [wheel] = built.glob("outrider_client-*.whl")
    assert "outrider_client.py" in zipfile.ZipFile(wheel).namelist()
    [about] = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    assert "Requires-Dist" not in zipfile.ZipFile(wheel).read(about).decode()


def test_the_checksums_are_those_of_everything_built(built: Path) -> None:
    lines = (built / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    files = {path.name: path for path in built.iterdir() if path.name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert sorted(re.sub(r"\d+\.\d+\.\d+", "X", name) for name in files) == [
        "outrider-X-py3-none-any.whl",
        "outrider-X.cdx.json",
        "outrider-X.tar.gz",
        "outrider_client-X-py3-none-any.whl",
    ]


@pytest.mark.costly("the release is built twice")
def test_the_same_commit_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    release.build(tmp_path / "again")
    for path in built.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_bill_names_every_dependency_with_its_version(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    parts = {part["name"]: part for part in bill["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for part in PARTS for line in extras[part])]
    assert {re.split(r"[><=;\[]", line)[0] for line in lines} - {"outrider"} <= parts.keys()
    assert {"starlette", "sqlalchemy", "sympy"} <= parts.keys()  # of fastapi, sqlmodel, torch
    assert not {"mypy", "ruff", "hypothesis"} & parts.keys()
    assert all(metadata.version(name).partition("+")[0] == part["version"] for name, part in parts.items())


def test_the_parts_are_the_extras_of_the_project_and_their_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert extras.keys() == {*PARTS, "all", "dev"}
    assert extras["all"] == [f"outrider[{','.join(PARTS)}]"]
    packages = metadata.packages_distributions()
    for part, modules in PARTS.items():
        own = [line for line in extras[part] if not line.startswith("outrider[")]
        assert [re.split("[><=]", line)[0] for line in own] == [
            packages[module][0].replace("_", "-") for module in modules
        ]


def test_the_bill_is_a_closed_graph(bill: dict[str, Any]) -> None:
    references = [bill["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in bill["components"])]
    assert len(references) == len(set(references))
    graph = {node["ref"]: node["dependsOn"] for node in bill["dependencies"]}
    assert sorted(graph) == sorted(references)
    assert {below for names in graph.values() for below in names} <= set(references)
    assert all(part["purl"].startswith("pkg:pypi/") for part in bill["components"])
    unlicensed = [part["name"] for part in bill["components"] if not part.get("licenses")]
    assert unlicensed == ["torchao"]  # its metadata has the text alone


def test_a_tag_that_is_not_the_version_ends_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["release.py", str(tmp_path), "--tag", "v99.0.0"])
    with pytest.raises(SystemExit, match=r"tag v\d+\.\d+\.\d+ expected for version .* got v99.0.0"):
        release.main()
    assert list(tmp_path.iterdir()) == []
