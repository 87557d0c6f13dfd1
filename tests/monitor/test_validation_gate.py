"""The gate in the trainer: appended versions are judged as they will be, and hand on what they hold."""

import dataclasses

import pytest

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.versions import Version
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext

from .test_trainer import CONFIG, add_job, context, flagged_and_labelled, hand_in, records, run

__all__ = ["context"]
MEAN = "expect_column_mean_to_be_between"


def configured(context: JobContext, own: str) -> JobContext:
    """The same service with expectations of the model."""
    path = context.settings.base / "outrider.toml"
    path.write_text(CONFIG.replace("[models.sign.retrain]", f"{own}\n[models.sign.retrain]", 1))
    return dataclasses.replace(context, settings=load_settings(path))


def newest(context: JobContext, name: str) -> Version:
    with context.engine.connect() as connection:
        return datasets.get(connection, name)


def mean(most: float, severity: str = "critical") -> str:
    kwargs = f'{{column = "faulty", max_value = {most}}}'
    return f'expectations = [{{type = "{MEAN}", severity = "{severity}", kwargs = {kwargs}}}]'


def test_a_version_keeps_its_aggregates_warnings_and_data_docs(context: JobContext) -> None:
    context = configured(context, mean(0.5, "warning"))
    flagged_and_labelled(context)
    add_job(context, "dataset")
    assert run(context).status == "done"
    version = newest(context, "sign-flagged")
    kept = version.manifest["validation"]
    assert kept["aggregates"]["rows"] == version.rows == 120
    assert kept["aggregates"]["columns"]["inputs.faulty"]["mean"] == 1.0
    assert [(each["rule"], each["field"]) for each in kept["warnings"]] == [(MEAN, "inputs.faulty")]
    assert context.objects.has(kept["data_docs"])


def test_an_append_is_judged_with_the_rows_before_it(context: JobContext) -> None:
    """200 healthy rows under the dataset's name, then 120 faulty ones: three in eight are faulty."""
    hand_in(context, "sign-flagged", *records(1, 200, faulty=False, prefix="old"))
    assert run(context).status == "done"
    flagged_and_labelled(context)
    narrow = configured(context, mean(0.37))
    add_job(narrow, "dataset")
    failed = run(narrow)
    assert failed.status == "failed"
    assert "observed 0.375" in failed.result["error"]
    wide = configured(context, mean(0.38))
    add_job(wide, "dataset")
    assert run(wide).status == "done"
    version = newest(wide, "sign-flagged")
    assert (version.number, version.rows) == (2, 320)
    columns = version.manifest["validation"]["aggregates"]["columns"]
    assert columns["inputs.faulty"]["mean"] == pytest.approx(0.375)


def test_a_suite_file_that_is_gone_fails_the_job_and_names_it(context: JobContext) -> None:
    context = configured(context, 'expectations = "suite.json"')
    hand_in(context, "sign-train", *records(1, 50, faulty=False, prefix="t"))
    job = run(context)
    assert job.status == "failed"
    assert "suite.json cannot be read" in job.result["error"]
