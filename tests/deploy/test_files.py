"""Texts of the files that run the service: an image, a unit, a pod, a workflow."""

import importlib
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from outrider.cli import COMMANDS
from tests.requirements import require_package

yaml: Any = importlib.import_module("yaml")  # comes with transformers, without types
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SHORTEST_STOP_S = 12
"""The service drains within ten seconds of SIGTERM."""


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with what follows each."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def image() -> list[tuple[str, str]]:
    return instructions(DEPLOY / "Dockerfile")


def read(name: str) -> Any:
    """A YAML file of one document."""
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


def unit() -> dict[str, str]:
    """Settings of the systemd unit; none stands twice but Environment."""
    lines = (DEPLOY / "outrider.service").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_image_is_built_on_a_version_and_from_the_wheel(image: list[tuple[str, str]]) -> None:
    bases = [rest.split()[0] for word, rest in image if word == "FROM"]
    assert all(re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base) for base in bases), bases
    assert [rest for word, rest in image if word == "COPY" and "--from" not in rest] == [
        "constraints.txt dist/outrider-*.whl /wheel/"
    ]
    assert not [word for word, _ in image if word == "ADD"]
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()[1:]
    assert kept == ["*", "!constraints.txt", "!dist/outrider-*.whl"]
    [install] = [rest for word, rest in image if word == "RUN" and "pip install" in rest]
    assert "--index-url https://download.pytorch.org/whl/cpu" in install
    assert install.count("--no-cache-dir") == 2
    assert "|| true" not in install


def test_the_image_runs_as_a_user_without_rights_and_says_how_it_is(image: list[tuple[str, str]]) -> None:
    last = {word: rest for word, rest in image if word not in ("RUN", "COPY")}
    assert last["USER"] == "10001:10001"
    assert last["VOLUME"] == "/data"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert "OUTRIDER_STORAGE__FOLDER=/data" in last["ENV"]
    assert "/healthz" in last["HEALTHCHECK"]
    # The form of a list: no shell between the signal and the service.
    assert yaml.safe_load(last["ENTRYPOINT"]) == ["outrider"]
    assert yaml.safe_load(last["CMD"])[0] in COMMANDS
    code = yaml.safe_load(last["HEALTHCHECK"].partition("CMD ")[2])[2]
    compile(code, "HEALTHCHECK", "exec")
    words = [word for word, _ in image]
    assert words.index("USER") > max(at for at, word in enumerate(words) if word in ("RUN", "COPY"))


def test_compose_gives_the_container_no_more_than_it_needs() -> None:
    one = read("compose.yaml")["services"]["outrider"]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["image"] == f"outrider:{PROJECT['version']}"
    assert int(one["stop_grace_period"].removesuffix("s")) >= SHORTEST_STOP_S
    assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).exists()
    assert [port.rpartition(":")[0] for port in one["ports"]] == ["127.0.0.1:8470"]
    assert any(volume.endswith(":/project:ro") for volume in one["volumes"])
    assert "data:/data" in one["volumes"]


def test_the_unit_gives_the_service_its_data_folder_and_nothing_else() -> None:
    found = unit()
    program, command, *_ = shlex.split(found["ExecStart"])
    assert (Path(program).name, command) == ("outrider", "serve")
    wanted = {
        "DynamicUser": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "NoNewPrivileges": "yes",
        "UMask": "0077",
        "Restart": "on-failure",
        "ReadWritePaths": "/var/lib/outrider",
        "StateDirectory": "outrider",
        "RuntimeDirectory": "outrider-empty",
        "WorkingDirectory": "%t/outrider-empty",
        "MemoryMax": "80%",
        "CapabilityBoundingSet": "",
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert int(found["TimeoutStopSec"]) >= SHORTEST_STOP_S
    text = (DEPLOY / "outrider.service").read_text(encoding="utf-8")
    assert "Environment=OUTRIDER_STORAGE__FOLDER=/var/lib/outrider" in text.splitlines()


def documents() -> list[dict[str, Any]]:
    """Objects of the manifest."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes-sidecar.yaml").read_text(encoding="utf-8")))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of how it reads its schemas
@pytest.mark.parametrize("version", ["1.29", "1.34"])
def test_the_manifest_is_one_of_kubernetes(version: str) -> None:
    validator: Any = require_package("kubernetes_validate", "pip install kubernetes-validate")
    for one in documents():
        validator.validate(one, version, strict=True)


def test_the_pod_shares_one_key_and_runs_the_sidecar_without_rights() -> None:
    [deployment] = [one for one in documents() if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    key, outrider = pod["initContainers"]
    [model] = pod["containers"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert outrider["restartPolicy"] == "Always"  # a sidecar, not a step before
    assert outrider["image"] == key["image"] == f"outrider:{PROJECT['version']}"
    for one in (key, outrider):
        rights = one["securityContext"]
        assert rights["runAsNonRoot"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["fsGroup"] == outrider["securityContext"]["runAsGroup"]
    assert pod["terminationGracePeriodSeconds"] >= SHORTEST_STOP_S
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounted = {mount["name"] for one in (key, outrider) for mount in one["volumeMounts"]}
    assert mounted == set(volumes)
    sent = {one["name"]: one for one in model["env"]}
    assert (
        sent["OUTRIDER_KEY"]["valueFrom"]["secretKeyRef"]["name"] == volumes["secret"]["secret"]["secretName"]
    )
    claims = [one["metadata"]["name"] for one in documents() if one["kind"] == "PersistentVolumeClaim"]
    assert claims == [volumes["data"]["persistentVolumeClaim"]["claimName"]]


def test_the_workflow_tests_before_it_publishes_and_keeps_no_token() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    jobs = workflow["jobs"]
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 takes the key `on` for a truth value
    assert [jobs[name].get("needs") for name in ("test", "build", "publish")] == [None, "test", "build"]
    assert any(step.get("run") == ".ci/run" for step in jobs["test"]["steps"])
    assert any("make release" in step.get("run", "") for step in jobs["build"]["steps"])
    assert workflow["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert not re.search(r"secrets\.|password|:latest|@(main|master)\b", text)
    uses = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert all(re.search(r"@(v\d+|release/v1)$", one) for one in uses), uses


def test_no_file_names_a_registry_but_that_of_torch() -> None:
    files = [*DEPLOY.iterdir(), ROOT / ".github" / "workflows" / "release.yml", ROOT / "docs" / "install.md"]
    named = {
        host
        for path in files
        if path.is_file()
        for host in re.findall(r"https?://([\w.-]+)", path.read_text(encoding="utf-8"))
        if not re.fullmatch(r"[\d.]+|localhost|outrider(\.example)?", host)
    }
    assert named == {"download.pytorch.org"}
