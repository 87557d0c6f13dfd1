"""Confinement of processes that open uploaded files.

Standard library only. A process confines itself before it starts a thread or imports anything large:
threads that run already are not confined.

References
----------
Landlock: unprivileged access control, https://docs.kernel.org/userspace-api/landlock.html
"""

import contextlib
import ctypes
import importlib.util
import os
import platform
import site
import struct
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls: the same numbers on every architecture."""
_RULESET_VERSION, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVS = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights that each version of the interface added up to."""
_TCP, _SCOPES = 0b11, 0b11
"""Bind and connect (version 4); abstract sockets and signals to processes outside (version 6)."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _READ_FILE | _READ_DIR | _EXECUTE
_SYSTEM = (
    "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share",
    "/usr/local/bin", "/usr/local/cuda", "/usr/local/lib", "/usr/local/lib64", "/usr/local/nvidia",
    "/lib", "/lib64", "/nix/store", "/opt/nvidia", "/etc/ld.so.cache", "/etc/localtime", "/proc/self",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems", "/sys/devices/system/cpu",
    "/sys/devices/system/node", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
"""Not ``/usr`` whole: images have projects in ``/usr/src/app``."""
_PACKAGES = ("outrider", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers", "torch", "transformers")
_VARIABLES = frozenset({
    "HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONHOME",
    "PYTHONPATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV",
})  # fmt: skip
_PREFIXES = ("CUDA_", "GOMP_", "KMP_", "LC_", "MALLOC_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_")

_SECRET = (
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "DSN",
    "DATABASE_URL",
)


def landlock_version() -> int:
    """Version of the kernel's interface; 0 where there is none."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return 0
    version = _system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)
    return max(0, version)


def confine(readable: Iterable[Path], writable: Iterable[Path] = ()) -> bool:
    """Deny this process all other files, and connections.

    Python's libraries stay readable.

    Parameters
    ----------
    readable, writable
        Files, or folders with all below them.

    Returns
    -------
    bool
        False where the kernel cannot: then nothing has changed.
    """
    version = landlock_version()
    if not version:
        return False
    rights = (1 << max(count for since, count in _RIGHTS.items() if since <= version)) - 1
    attributes = struct.pack("QQQ", rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    rules = _system_call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        for path in [*libraries(), *readable]:
            _allow(rules, path, _READ & rights)
        for path in [Path(os.devnull), *writable]:
            _allow(rules, path, rights & ~_IOCTL)
        ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        return _system_call(_RESTRICT_SELF, rules, 0) == 0
    finally:
        os.close(rules)


def libraries() -> list[Path]:
    """Folders and files of Python, its packages and the C library."""
    paths = sysconfig.get_paths()
    found = [*_SYSTEM, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
    found += [
        sys.executable,
        os.path.realpath(sys.executable),
        f"{sys.base_prefix}/lib",
        f"{sys.prefix}/pyvenv.cfg",
    ]
    found += [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    for name in _PACKAGES:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            found += [] if spec is None else spec.submodule_search_locations or []
    return [path for path in map(Path, dict.fromkeys(found)) if path.exists()]


def clean_environment(environment: Mapping[str, str], *, kept: Collection[str] = ()) -> dict[str, str]:
    """Variables that libraries need, and kept ones; no other secret.

    Packages of the user are found whatever ``HOME`` becomes.
    """
    return {"PYTHONUSERBASE": site.getuserbase()} | {
        name: value
        for name, value in environment.items()
        if name in kept or name in _VARIABLES or name.startswith(_PREFIXES)
    }


def without_secrets(environment: Mapping[str, str], *, kept: Collection[str] = ()) -> dict[str, str]:
    """Variables whose names are none of a secret, for the owner's code.

    Settings (``OUTRIDER_SECTION__NAME``) stay.

    Parameters
    ----------
    kept
        Secrets that it needs.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in kept
        or (name.startswith("OUTRIDER_") and "__" in name)
        or not any(word in name.upper() for word in _SECRET)
    }


def clean_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Command of a module, without imports from the working directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def bound_memory(most: int) -> None:
    """Fail allocations beyond so many bytes of data.

    A machine short of memory ends this process first. Data are counted, not addresses: mapped weights
    and what CUDA reserves do not count.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_first()


def end_first() -> None:
    """Be the first process that the kernel ends when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _allow(rules: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _OF_FILES, handle)
        _system_call(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
    finally:
        os.close(handle)


def _system_call(number: int, *arguments: object) -> int:
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
