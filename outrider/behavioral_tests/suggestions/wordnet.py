"""Synonyms, antonyms, broader and narrower words from WordNet's files.

Reads the database files (``index.noun``, ``data.noun``, …; WordNet manual page wndb(5WN)) directly, as
distributed by Princeton, Debian's ``wordnet-base`` and NLTK's data: no package is needed, only the data.

References
----------
Miller, "WordNet: A Lexical Database for English", Communications of the ACM 38(11), 1995.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args
from zipfile import Path as ZipPath

Pos = Literal["noun", "verb", "adj", "adv"]
_LETTERS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
_UP, _DOWN, _OPPOSITE = ("@", "@i"), ("~", "~i"), ("!",)


class _Folder(Protocol):
    """Folder, or folder inside a zip file."""

    def joinpath(self, name: str, /) -> "_Folder": ...
    def is_file(self) -> bool: ...
    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Synset:
    """Words of one meaning, and its pointers: symbol, position, part of speech, own word, target word."""

    words: tuple[str, ...]
    pointers: tuple[tuple[str, int, str, int, int], ...]


class WordNet:
    """WordNet's database files in a folder.

    Parameters
    ----------
    folder
        Folder with ``index.noun`` and the other files, or NLTK's ``wordnet.zip``. Default: ``$WNSEARCHDIR``,
        ``corpora/wordnet`` of ``$NLTK_DATA`` and ``~/nltk_data``, then ``/usr/share/wordnet``.

    Raises
    ------
    FileNotFoundError
        If the files are missing; the message says how to get them.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self._folder = _found(_places() if folder is None else [Path(folder)])
        self._files: dict[str, bytes] = {}

    def synonyms(self, word: str, pos: Pos | None = None) -> tuple[str, ...]:
        """Single words that share a meaning with ``word``, most common meaning first."""
        return _others(word, (each for synset in self._synsets(word, pos) for each in synset.words))

    def antonyms(self, word: str, pos: Pos | None = None) -> tuple[str, ...]:
        """Opposites of ``word`` itself, not of other words of its meanings."""
        return _others(word, self._opposites(word, pos))

    def hypernyms(self, word: str, pos: Pos | None = None, *, depth: int = 1) -> tuple[str, ...]:
        """More general words, up to ``depth`` steps away."""
        return self._reached(word, pos, _UP, depth)

    def hyponyms(self, word: str, pos: Pos | None = None, *, depth: int = 1) -> tuple[str, ...]:
        """More specific words, up to ``depth`` steps away."""
        return self._reached(word, pos, _DOWN, depth)

    def related(self, word: str, pos: Pos | None = None) -> tuple[str, ...]:
        """Words with the same parent, such as "tiger" for "lion"."""
        above = [up for synset in self._synsets(word, pos) for up in self._beyond(synset, _UP)]
        return _others(
            word, (each for up in above for down in self._beyond(up, _DOWN) for each in down.words)
        )

    def _opposites(self, word: str, pos: Pos | None) -> Iterator[str]:
        for synset in self._synsets(word, pos):
            own = [each.lower() for each in synset.words].index(_lemma(word)) + 1
            for symbol, offset, part, source, target in synset.pointers:
                if symbol in _OPPOSITE and source in (0, own):
                    words = self._synset(part, offset).words
                    yield from words if target == 0 else words[target - 1 : target]

    def _reached(self, word: str, pos: Pos | None, symbols: tuple[str, ...], depth: int) -> tuple[str, ...]:
        level, words = list(self._synsets(word, pos)), list[str]()
        for _ in range(depth):
            level = [further for synset in level for further in self._beyond(synset, symbols)]
            words += [each for synset in level for each in synset.words]
        return _others(word, iter(words))

    def _beyond(self, synset: _Synset, symbols: tuple[str, ...]) -> list[_Synset]:
        return [
            self._synset(part, offset) for symbol, offset, part, *_ in synset.pointers if symbol in symbols
        ]

    def _synsets(self, word: str, pos: Pos | None) -> Iterator[_Synset]:
        if pos is not None and pos not in get_args(Pos):
            raise ValueError(f"pos must be one of {', '.join(get_args(Pos))}, got {pos!r}")
        for part in get_args(Pos) if pos is None else (pos,):
            index = self._file(f"index.{part}")
            start = index.find(f"\n{_lemma(word)} ".encode())
            if start < 0:
                continue
            fields = index[start + 1 : index.index(b"\n", start + 1)].split()
            for offset in fields[-int(fields[2]) :]:
                yield self._synset(part, int(offset))

    def _synset(self, part: str, offset: int) -> _Synset:
        """Parse the line of ``data.<part>`` that starts at byte ``offset``."""
        data = self._file(f"data.{part}")
        fields = data[offset : data.index(b"\n", offset)].decode().split(" | ")[0].split()
        end = 4 + 2 * int(fields[3], 16)
        words = tuple(word.partition("(")[0] for word in fields[4:end:2])  # "galore(ip)" says its position
        pointers = tuple(
            (fields[at], int(fields[at + 1]), _LETTERS[fields[at + 2]], *_ends(fields[at + 3]))
            for at in range(end + 1, end + 1 + 4 * int(fields[end]), 4)
        )
        return _Synset(words, pointers)

    def _file(self, name: str) -> bytes:
        if name not in self._files:
            self._files[name] = self._folder.joinpath(name).read_bytes()
        return self._files[name]


def _ends(field: str) -> tuple[int, int]:
    """Own word number and target word number of a pointer: two hex digits each."""
    return int(field[:2], 16), int(field[2:], 16)


def _lemma(word: str) -> str:
    return word.lower().replace(" ", "_")


def _others(word: str, found: Iterator[str]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(found) if "_" not in each and each.lower() != word.lower())


def _places() -> list[Path]:
    nltk = [Path(place) for place in os.environ.get("NLTK_DATA", "").split(os.pathsep) if place]
    nltk.append(Path.home() / "nltk_data")
    given = [Path(os.environ["WNSEARCHDIR"])] if os.environ.get("WNSEARCHDIR") else []
    corpora = [place / "corpora" / name for place in nltk for name in ("wordnet", "wordnet.zip")]
    return [*given, *corpora, Path("/usr/share/wordnet")]


def _found(places: list[Path]) -> _Folder:
    for place in places:
        folder: _Folder = ZipPath(place, "wordnet/") if place.suffix == ".zip" and place.is_file() else place
        if folder.joinpath("index.noun").is_file():
            return folder
    raise FileNotFoundError(
        f"no WordNet files (index.noun, data.noun, …) in {', '.join(map(str, places))}; get them with "
        "'apt-get install wordnet-base' or 'python -m nltk.downloader wordnet', or pass their folder"
    )
