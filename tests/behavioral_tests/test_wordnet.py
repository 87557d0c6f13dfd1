"""``wordnet/`` holds 16 synsets of WordNet 3.0 in its own file format, pointers between them kept."""

import zipfile
from pathlib import Path

import pytest

from outrider.behavioral_tests import template
from outrider.behavioral_tests.suggestions import WordNet

FOLDER = Path(__file__).parent / "wordnet"


@pytest.fixture(scope="module")
def wordnet() -> WordNet:
    return WordNet(FOLDER)


def test_synonyms_antonyms_and_words_above_and_below(wordnet: WordNet) -> None:
    assert wordnet.synonyms("film") == ("movie", "picture", "pic", "flick")
    assert wordnet.synonyms("superb", "adj") == ("brilliant",)
    assert wordnet.antonyms("good", "adj") == ("bad",)
    assert wordnet.antonyms("quickly") == ("slowly",)
    assert wordnet.hypernyms("cat") == ("feline", "felid")
    assert wordnet.hyponyms("cat") == ("lion", "tiger")
    assert wordnet.hyponyms("feline", depth=2) == ("cat", "lion", "tiger")
    assert "tiger" in wordnet.related("lion")


def test_an_antonym_belongs_to_one_word_of_a_meaning(wordnet: WordNet) -> None:
    assert wordnet.antonyms("buy") == ("sell",)
    assert wordnet.antonyms("purchase") == ()


def test_case_and_part_of_speech(wordnet: WordNet) -> None:
    assert wordnet.synonyms("Film", "noun") == wordnet.synonyms("film")
    assert wordnet.synonyms("film", "verb") == ()
    assert wordnet.synonyms("unheard-of") == ()
    with pytest.raises(ValueError, match="noun, verb, adj, adv"):
        wordnet.synonyms("film", "nouns")  # type: ignore[arg-type]  # what is tested


def test_a_zip_file_serves_as_well(wordnet: WordNet, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "wordnet.zip", "w") as packed:
        for path in FOLDER.iterdir():
            packed.write(path, f"wordnet/{path.name}")
    assert WordNet(tmp_path / "wordnet.zip").synonyms("film") == wordnet.synonyms("film")


def test_the_files_are_found_by_their_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WNSEARCHDIR", str(FOLDER))
    assert WordNet().antonyms("good") == ("bad",)
    monkeypatch.delenv("WNSEARCHDIR")
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "wordnet").symlink_to(FOLDER)
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert WordNet().antonyms("good") == ("bad",)


def test_absent_files_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="wordnet-base"):
        WordNet(tmp_path)


def test_words_fill_a_template(wordnet: WordNet) -> None:
    filled = template("a {word}", word=["film", *wordnet.synonyms("film")]).product()
    assert filled.values == ("a film", "a movie", "a picture", "a pic", "a flick")
