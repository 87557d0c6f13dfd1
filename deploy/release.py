"""Build what a release consists of: sdist, the two wheels, an SBOM and checksums.

Run as ``python deploy/release.py [FOLDER]`` (``make release``). What git tracks is built, not what lies
about; the time of the last commit stands for that of the build: the same commit gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
_BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def build(folder: Path) -> list[Path]:
    """Write sdist, wheels, SBOM and ``SHA256SUMS`` of the last commit; their paths."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as work:
        source, sdist = Path(work, "source"), Path(work, "sdist")
        _unpack(_git_bytes("archive", "--format=tar", "HEAD"), source)
        sdist.mkdir()
        _run_hook("build_sdist", source, sdist, epoch)
        [archive] = sdist.glob("*.tar.gz")
        built = [folder / archive.name]
        built[0].write_bytes(reproducible(archive.read_bytes(), epoch))
        # The wheel is made from the sdist: who has that alone can make it too.
        unpacked = Path(work, "unpacked")
        _unpack(gzip.decompress(built[0].read_bytes()), unpacked)
        built += [_wheel(next(unpacked.iterdir()), folder, epoch), _wheel(source / "client", folder, epoch)]
    name, version = built[0].name.removesuffix(".tar.gz").split("-")
    bill = folder / f"{name}-{version}.cdx.json"
    bill.write_text(json.dumps(bill_of_materials(ROOT / "pyproject.toml"), indent=1) + "\n", encoding="utf-8")
    built.append(bill)
    sums = folder / "SHA256SUMS"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    sums.write_text("".join(lines), encoding="utf-8")
    return [*built, sums]


def reproducible(archive: bytes, epoch: int) -> bytes:
    """Archive with sorted names, one owner and one time."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def bill_of_materials(pyproject: Path) -> dict[str, Any]:
    """CycloneDX document of the project and all that it and its parts require, as installed here."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *_lines_of(project, "all")]
    own = sorted({canonicalize_name(one.name) for one in map(Requirement, lines) if _is_meant(one, "")})
    needed = required(lines)
    top = f"pkg:pypi/{project['name']}@{project['version']}"
    parts = [_component(name) for name in sorted(needed)]
    addresses = {part["name"]: part["bom-ref"] for part in parts}
    graph = {top: own} | {addresses[name]: below for name, below in sorted(needed.items())}
    content = {
        "components": parts,
        "dependencies": [
            {"ref": ref, "dependsOn": [addresses[name] for name in names]} for ref, names in graph.items()
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, top + json.dumps(content))
    application = {
        "type": "application",
        "bom-ref": top,
        "name": project["name"],
        "version": project["version"],
        "purl": top,
        "licenses": [{"license": {"id": project["license"]}}],
    }
    head = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return head | {"metadata": {"component": application}} | content


def required(lines: Iterable[str]) -> dict[str, list[str]]:
    """Packages that requirements need, with those that each needs itself, as installed here."""
    needed: dict[str, list[str]] = {}
    waiting = [(Requirement(line), "") for line in lines]
    while waiting:
        requirement, asked_for = waiting.pop()
        name = canonicalize_name(requirement.name)
        if not _is_meant(requirement, asked_for):
            continue
        extras = ["", *requirement.extras]
        below = [
            (one, extra)
            for one in map(Requirement, metadata.requires(name) or ())
            for extra in extras
            if _is_meant(one, extra)
        ]
        names = {canonicalize_name(one.name) for one, _ in below} - {name}
        if name not in needed or names - set(needed[name]):
            needed[name] = sorted(names | set(needed.get(name, ())))
            waiting += below
    return needed


def _lines_of(project: dict[str, Any], extra: str) -> list[str]:
    """Requirements of an extra, and of those that it names."""
    found: list[str] = []
    for line in project["optional-dependencies"][extra]:
        needed = Requirement(line)
        own = needed.extras if needed.name == project["name"] else ()
        found += [one for other in sorted(own) for one in _lines_of(project, other)] or [line]
    return found


def _component(name: str) -> dict[str, Any]:
    about = metadata.metadata(name)
    # The local part says how a wheel was built (torch: +cpu), not which release it is.
    version = about["Version"].partition("+")[0]
    address = f"pkg:pypi/{name}@{version}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
    }
    if expression := about.get_all("License-Expression"):
        return found | {"licenses": [{"expression": expression[0]}]}
    named = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", ()) if "License ::" in line]
    named += [text.strip().partition("\n")[0] for text in about.get_all("License", ())]
    licences = [{"license": {"name": one}} for one in named if one][:1]
    return found | ({"licenses": licences} if licences else {})


def _is_meant(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _wheel(source: Path, folder: Path, epoch: int) -> Path:
    with TemporaryDirectory() as work:
        _run_hook("build_wheel", source, Path(work), epoch)
        [wheel] = Path(work).glob("*.whl")
        return Path(shutil.move(wheel, folder / wheel.name))


def _run_hook(hook: str, source: Path, folder: Path, epoch: int) -> None:
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", _BUILD, hook, str(folder)]
    done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"release: {hook} in {source.name}: {done.stderr.strip()}")


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def _git_bytes(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def _git(*arguments: str) -> str:
    return _git_bytes(*arguments).decode().strip()


def _check_tag(tag: str) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        sys.exit(f"release: tag v{version} expected for version {version} of pyproject.toml, got {tag}")


def _lines(paths: list[Path]) -> Iterator[str]:
    return (f"{path}  {path.stat().st_size:,} bytes\n" for path in paths)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the files of a release.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--tag", help="end with an error unless it is v and the version of pyproject.toml")
    options = parser.parse_args()
    if options.tag:
        _check_tag(options.tag)
    sys.stdout.writelines(_lines(build(options.folder.resolve())))


if __name__ == "__main__":
    main()
