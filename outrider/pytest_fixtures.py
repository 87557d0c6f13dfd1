"""Pytest fixtures: model under test, dataset versions, assertions' flags."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .assertions import Assertion, Batch, Flags, Predictor
    from .behavioral_tests.cases import CasesLike


def named_model(config: pytest.Config) -> tuple[str, Path]:
    """Model reference of options or ini file, and its folder."""
    reference: str | None = config.getoption("--outrider-model")
    if reference:
        return reference, config.invocation_params.dir
    return str(config.getini("outrider_model")), config.inipath.parent if config.inipath else config.rootpath


@pytest.fixture(scope="session")
def outrider_model(pytestconfig: pytest.Config) -> "Predictor":
    """Model under test.

    Override it in a conftest.py to test one that was built there.
    """
    reference, folder = named_model(pytestconfig)
    if not reference:
        pytest.fail(
            "no model to test: give --outrider-model file.py:function, set outrider_model in pytest.ini, "
            "or define a fixture outrider_model in conftest.py",
            pytrace=False,
        )
    from .errors import ConfigError
    from .model_reference import load_predictor

    try:
        return load_predictor(reference, folder=folder)
    except ConfigError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def outrider_dataset(pytestconfig: pytest.Config) -> "Callable[..., Batch]":
    """Function of a dataset's name and optional version, to a Batch.

    They come from the service at ``OUTRIDER_URL``, else from the data folder of the project in which pytest
    was started.
    """
    from .dataset_reference import load_dataset
    from .errors import ConfigError

    def read(name: str, version: int | None = None) -> "Batch":
        try:
            return load_dataset(
                name if version is None else f"{name}@{version}", folder=pytestconfig.invocation_params.dir
            )
        except ConfigError as error:
            pytest.fail(str(error), pytrace=False)

    return read


@pytest.fixture
def outrider_flags(request: pytest.FixtureRequest) -> "Callable[..., Flags]":
    """Function of assertions and records that returns flags.

    Assertions are a file or a list; the flags are those on the model's answers.

    Records without answers are answered by ``outrider_model``; a relative file is beside the test's.
    """
    from .assertions import Checker, load_assertions
    from .behavioral_tests.asking import ask
    from .behavioral_tests.cases import to_batch

    def judge(assertions: "str | Path | Sequence[Assertion]", records: "CasesLike") -> "Flags":
        folder = request.path.parent
        judges = (
            load_assertions(folder / assertions) if isinstance(assertions, str | Path) else list(assertions)
        )
        batch = to_batch(records, folder=folder)
        if not any(name.startswith("outputs.") for name in batch.names):
            batch = ask(request.getfixturevalue("outrider_model"), batch)
        return Checker(judges).check(batch)

    return judge
