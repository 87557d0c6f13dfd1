import hashlib
import json
from importlib.resources import files
from pathlib import Path

import pytest

from outrider.behavioral_tests import lexicons, template

FOLDER = files("outrider.behavioral_tests") / "lexicon_data"
NOTICE = (FOLDER / "NOTICE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", lexicons.names())
def test_a_lexicon_holds_distinct_words(name: str) -> None:
    words = lexicons.lexicon(name)
    assert len(words) == len(set(words)) >= 3
    assert all(word == word.strip() and word for word in words)
    assert len(words) <= 200, "a list used without asking stays small enough to combine"


@pytest.mark.parametrize("name", lexicons.names())
def test_a_lexicon_is_what_the_manifest_says(name: str) -> None:
    about = lexicons.about(name)
    assert hashlib.sha256((FOLDER / about.file).read_bytes()).hexdigest() == about.sha256
    assert set(lexicons.records(name)[0]) == set(about.columns)
    assert about.licence in ("Apache-2.0", "MIT", "CC-BY-4.0")


def test_every_foreign_source_has_its_licence_in_the_notice() -> None:
    entries = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["files"]
    foreign = {file: entry for file, entry in entries.items() if entry["licence"] != "Apache-2.0"}
    assert len(foreign) == 4
    for file, entry in foreign.items():
        assert f"`{file}`" in NOTICE
        assert entry["source"].split()[0] in NOTICE
    assert "Copyright (c) 2012 Daniele Faraglia" in NOTICE
    assert "https://creativecommons.org/licenses/by/4.0/" in NOTICE
    on_disk = {entry.name for entry in FOLDER.iterdir() if entry.name.endswith(".csv")}
    assert on_disk == set(entries)


def test_words_are_small_on_disk() -> None:
    assert sum(len(entry.read_bytes()) for entry in FOLDER.iterdir()) < 1_500_000


def test_words_are_chosen_by_the_columns_of_their_table() -> None:
    women = lexicons.lexicon("first_name", country="India", gender="female")
    assert len(women) == 30
    assert women == lexicons.lexicon("female", country="India")
    assert not set(women) & set(lexicons.lexicon("male", country="India"))
    both = lexicons.lexicon("city", country=["France", "Japan"])
    assert {"Paris", "Tokyo"} < set(both)
    assert "London" not in both
    assert lexicons.lexicon("nationality", country="Ghana") == ("Ghanaian",)


def test_a_wrong_column_or_value_is_named() -> None:
    with pytest.raises(KeyError, match="first_name, country, gender"):
        lexicons.lexicon("first_name", planet="Mars")
    with pytest.raises(ValueError, match="India"):
        lexicons.lexicon("first_name", country="Inda")
    with pytest.raises(KeyError, match="profession"):
        lexicons.lexicon("professions")


def test_rows_serve_slots_with_attributes() -> None:
    filled = template("{p.subject} hurt {p.reflexive}", p=lexicons.records("pronoun")).product()
    assert filled.values == ("he hurt himself", "she hurt herself", "they hurt themselves")


def test_the_version_belongs_to_the_lists() -> None:
    assert lexicons.version() == hashlib.sha256((FOLDER / "manifest.json").read_bytes()).hexdigest()[:12]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_words_come_from_a_csv_file(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "words.csv"
    path.write_text("team,town\nReds,Oslo\nBlues,Oslo\nReds,Bergen\n", encoding=encoding)
    assert lexicons.load_csv(path, "team") == ("Reds", "Blues")
    with pytest.raises(KeyError, match="team, town"):
        lexicons.load_csv(path, "nope")
    by_column = template("{team} of {town}", **lexicons.load_columns(path))
    assert by_column.combinations == 4
    rows = template("{t.team} of {t.town}", t=lexicons.load_records(path)).product()
    assert rows.values == ("Reds of Oslo", "Blues of Oslo", "Reds of Bergen")


def test_own_values_take_the_place_of_a_lexicon() -> None:
    assert template("{city}", city=["Atlantis"]).product().values == ("Atlantis",)
