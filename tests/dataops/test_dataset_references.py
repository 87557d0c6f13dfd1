"""Versions by number, tag and time, in the store and in the policies that name them."""

import re

import pytest
from sqlalchemy import Engine

from outrider.dataops.datasets.references import (
    TagTaken,
    find_version,
    list_tags,
    open_if_any,
    open_version,
    remove_tag,
    set_tag,
)
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import NotFound

from .test_datasets import commit, rows

US = 1_000_000


@pytest.fixture
def versions(engine: Engine, objects: LocalObjects) -> Engine:
    """Three versions, committed at the first second of three days."""
    for number, ids in enumerate(("ab", "cd", "ef")):
        commit(engine, objects, rows(ids))
        with write(engine) as connection:
            at = (1_767_225_600 + 86_400 * number) * US  # 2026-01-01 and after
            connection.exec_driver_sql(
                f"UPDATE dataset_version SET created_us = {at} WHERE number = {number + 1}"
            )
    return engine


@pytest.mark.parametrize(
    ("reference", "number"),
    [
        ("d", 3),
        ("d@", 3),
        ("d@newest", 3),
        ("d@2", 2),
        ("d@2026-01-01", 1),
        ("d@2026-01-01T23:59", 1),
        ("d@2026-01-02T00:00:00Z", 2),
        ("d@2026-01-02T00:30+01:00", 1),
        ("d@2030-01-01", 3),
        ("d@first", 1),
    ],
)
def test_a_reference_names_a_version(versions: Engine, reference: str, number: int) -> None:
    with write(versions) as connection:
        set_tag(connection, "d", "first", "1", moves=False, now_us=1)
        assert open_version(connection, reference).number == number


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("e", "no dataset 'e'; there are d"),
        ("d@4", "dataset 'd' has no version 4"),
        (f"d@{'9' * 40}", "dataset 'd' has no version"),
        ("d@frist", "dataset 'd' has no tag 'frist'; nearest: first"),
        ("d@2025-12-31", "had no version then: the first is of 2026-01-01T00:00:00+00:00"),
        ("d@2026-13-01", "'2026-13-01' is no time"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(versions: Engine, reference: str, message: str) -> None:
    with write(versions) as connection:
        set_tag(connection, "d", "first", "1", moves=False, now_us=1)
        with pytest.raises(NotFound, match=re.escape(message)):
            open_version(connection, reference)


def test_a_policy_takes_a_dataset_that_has_no_version_yet(versions: Engine) -> None:
    with versions.connect() as connection:
        assert open_if_any(connection, None) is None
        assert open_if_any(connection, "later") is None
        assert open_if_any(connection, "later@tag") is None
        with pytest.raises(NotFound, match="has no tag 'tag'; it has none"):
            open_if_any(connection, "d@tag")


def test_a_tag_stays_until_it_is_moved_or_removed(versions: Engine) -> None:
    with write(versions) as connection:
        first = set_tag(connection, "d", "good", "1", moves=False, now_us=7)
        assert set_tag(connection, "d", "good", "2026-01-01", moves=False, now_us=8) == first
        with pytest.raises(TagTaken, match="tag 'good' names d@1"):
            set_tag(connection, "d", "good", "2", moves=False, now_us=9)
        assert set_tag(connection, "d", "best", "good", moves=False, now_us=9).version == 1
        assert set_tag(connection, "d", "good", "2", moves=True, now_us=9).version == 2
        assert [(tag.tag, tag.version) for tag in list_tags(connection)] == [("best", 1), ("good", 2)]
        remove_tag(connection, "d", "good")
        assert find_version(connection, "d", "best").number == 1
        with pytest.raises(NotFound, match="has no tag 'good'; there are best"):
            remove_tag(connection, "d", "good")
        for odd in ("", "3", "newest", "2026-01-01", "a b", "x" * 65, "é"):
            with pytest.raises(ValueError, match="tag: a letter, then up to 63"):
                set_tag(connection, "d", odd, "1", moves=True, now_us=9)
