"""Reports of comparisons that are kept, one file each in ``comparisons/``."""

import hashlib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import msgspec
from msgspec import Meta
from typing_extensions import TypedDict

from outrider.errors import OutriderError, ValidationRefused

from .whole_file import write_whole

log = logging.getLogger(__name__)
FOLDER = "comparisons"
RUNNING = "running"
"""Ending of a report whose comparison goes on."""
MOST = 200
"""Comparisons that are kept where nothing else is said."""
_ID = re.compile(r"[0-9a-f]{16}")
_WHERE = re.compile(r"^(?P<fault>.*) - at `\$\.?(?P<field>.*)`$", re.DOTALL)

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Word: TypeAlias = Literal["same", "close", "different", "undecided"]
Verdict: TypeAlias = Literal["same", "close", "different", "worse", "better", "undecided"]


class BoundedShare(TypedDict):
    """Share of records with its bounds."""

    value: float
    low: float
    high: float


class ReasonCount(TypedDict):
    """Number of questions by reason."""

    reason: str
    count: Count


class AnswerTimes(TypedDict):
    """Seconds until an answer, and answers that were timed."""

    p50: float | None
    p99: float | None
    count: Count


class TokenCounts(TypedDict):
    """Tokens of the answers that named theirs."""

    input: Count
    output: Count
    answers: Count


class ComparedSystem(TypedDict):
    """Figures of one system beside its answers."""

    name: str
    asked: Count
    fates: dict[str, Count]
    why: list[ReasonCount]
    latency_s: AnswerTimes
    tokens: TokenCounts
    models: list[str]
    address: NotRequired[str]
    prompt: NotRequired[str]
    cached: Count
    retries: Count
    price_per_1000: NotRequired[float]
    price: NotRequired[float]


class MeasureFound(TypedDict):
    """Verdict on a candidate in one respect."""

    measure: str
    records: Count
    verdict: Word
    beyond_noise: BoundedShare
    is_noise_known: bool
    why: str
    more: int | None
    differs: float
    noise: float | None
    candidate_noise: float | None
    asked_twice: Count


class SliceFound(TypedDict):
    """Difference on one slice, and elsewhere."""

    name: str
    measure: str
    rows: Count
    value: float
    low: float
    high: float
    rest: float
    more_than_rest: float
    is_proven: bool


class OutcomeFound(TypedDict):
    """Failures of one kind by the candidate alone, and by production alone."""

    word: Literal["worse", "better", "same", "close", "undecided"]
    value: float
    low: float
    high: float
    rows: Count
    only_candidate: Count
    only_production: Count
    more: int | None


class JudgeFound(TypedDict):
    """Preference of a judge, corrected by labels."""

    direction: str
    value: float
    low: float
    high: float
    records: Count
    labels: Count


class TextsFound(TypedDict):
    """Energy distance of embedded texts, with bounds of its witness."""

    distance: float
    value: float
    low: float
    high: float
    records: Count
    is_proven: bool


class UnlabelledVerdict(TypedDict):
    """Verdict without any label."""

    word: Verdict
    sentence: str


class DifferenceLook(TypedDict):
    """Difference beyond noise as of one look."""

    records: Count
    value: float
    low: float
    high: float


class DifferingPair(TypedDict):
    """Question with two answers that differ."""

    id: str
    slice: str
    inputs: dict[str, Any]
    production: str
    candidate: str


class PairToLabel(DifferingPair):
    """Pair with the side that is right, null before anybody said."""

    right: Literal["production", "candidate", "both", "neither"] | None


class ComparedCandidate(ComparedSystem):
    """Candidate with verdict, evidence, examples, and pairs to label."""

    verdict: Verdict
    sentence: str
    records: Count
    agreement: Annotated[list[MeasureFound], Meta(max_length=100)]
    slices: Annotated[list[SliceFound], Meta(max_length=1000)]
    outcomes: dict[str, OutcomeFound]
    judge: JudgeFound | None
    texts: TextsFound | None
    preferences: dict[str, Annotated[float, Meta(ge=-1, le=1, multiple_of=0.5)]] | None
    unlabelled: UnlabelledVerdict
    history: Annotated[list[DifferenceLook], Meta(max_length=1000)]
    examples: Annotated[list[DifferingPair], Meta(max_length=100)]
    to_label: Annotated[list[PairToLabel], Meta(max_length=10_000)]


class ExpectedRecords(TypedDict):
    """Records and questions that prove an equal candidate, by noise."""

    noise: float
    records: int | None
    production: int | None
    candidate: int | None


class ComparisonPlan(TypedDict):
    """Forecast of a comparison, and the seed of its draws."""

    expected: list[ExpectedRecords]
    cost: dict[str, list[float | None]]
    seed: int


class ComparisonFound(TypedDict):
    """Report of a comparison, as printed by ``outrider compare --json``."""

    model: NotRequired[str]
    margin: Annotated[float, Meta(gt=0, lt=1)]
    ended: Literal["decided", "records", "time", "traffic", "stopped", "running"]
    began: NotRequired[str]
    seconds: Annotated[float, Meta(ge=0)]
    records: dict[str, Any]
    notes: Annotated[list[str], Meta(max_length=1000)]
    plan: ComparisonPlan
    production: ComparedSystem
    candidates: Annotated[list[ComparedCandidate], Meta(min_length=1, max_length=50)]


@dataclass(frozen=True, slots=True)
class KeptComparison:
    """Report of a comparison with its permanent id."""

    id: str
    kept_us: int
    report: ComparisonFound


def read_report(body: bytes) -> ComparisonFound:
    """Parse a report, as ``outrider compare --json`` prints one.

    Raises
    ------
    ValidationRefused
        If it is none; the message names the field.
    """
    try:
        return msgspec.json.decode(body, type=ComparisonFound)
    except msgspec.ValidationError as error:
        found = _WHERE.match(str(error))
        fault = f"{found['field']}: {found['fault']}" if found else str(error)
        raise ValidationRefused(f"no report of outrider compare --json: {fault}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValidationRefused(f"no report of outrider compare --json: {error}") from None


class Comparisons:
    """Kept comparisons of one data folder.

    Parameters
    ----------
    most
        How many are kept: with one more the oldest goes, unless it has labels.
    """

    def __init__(self, data_folder: Path, *, most: int = MOST) -> None:
        self._folder = data_folder / FOLDER
        self._most = most
        self._lock = threading.Lock()
        self._senders: dict[str, str] = {}
        """Who sends the reports of a running comparison, by its id."""

    def keep(self, report: ComparisonFound, *, now_us: int) -> str:
        """Keep a report; its id.

        The same report again keeps its first copy, with the labels.
        """
        said = json.dumps(report, ensure_ascii=False, sort_keys=True)
        id_ = hashlib.sha256(said.encode()).hexdigest()[:16]
        self._make_folder()
        with self._lock:
            if not self._path(id_).exists():
                self._write(KeptComparison(id_, now_us, report))
                self._expire(id_)
        return id_

    def follow(self, id_: str, report: ComparisonFound, *, now_us: int, sender: str = "") -> bool:
        """Keep the newest report of a running comparison, or its last.

        Returns
        -------
        bool
            True where it goes on: neither its first nor its last report, nor one of another sender.

        Raises
        ------
        ValidationRefused
            If the id is none, or the comparison of this id has ended.
        """
        if not _ID.fullmatch(id_):
            raise ValidationRefused(f"an id of 16 hexadecimal digits expected, got {id_[:40]!r}")
        self._make_folder()
        with self._lock:
            found = self.read(id_)
            if found is not None and found.report["ended"] != RUNNING:
                raise ValidationRefused(f"comparison {id_} has ended: send another report under another id")
            self._write(KeptComparison(id_, now_us, report))
            self._expire(id_)
            before = self._senders.pop(id_, None)
            if report["ended"] != RUNNING:
                return False
            self._senders[id_] = sender
            if len(self._senders) > self._most:  # they ended without a last report
                del self._senders[next(iter(self._senders))]
            return found is not None and before == sender

    def remove(self, id_: str, *, has_labels: bool = False) -> bool:
        """Remove a comparison; False where there is none.

        Parameters
        ----------
        has_labels
            Whether it goes with its labels.

        Raises
        ------
        ValidationRefused
            If it has labels, and they are not to go.
        """
        with self._lock:
            try:
                found = self.read(id_)
            except OutriderError:
                labels = 0  # a damaged file has none to lose
            else:
                if found is None:
                    return False
                labels = labels_of(found.report)
            if labels and not has_labels:
                raise ValidationRefused(
                    f"comparison {id_} has {labels} labels, which go with it: say labels=true to remove both"
                )
            self._path(id_).unlink(missing_ok=True)
            return True

    def _expire(self, kept: str) -> None:
        """Remove the oldest comparisons beyond the bound, but none with labels, and not ``kept``."""
        if len(self._paths()) <= self._most:
            return
        others = [one for one in self.newest(sys.maxsize) if one.id != kept]
        for one in others[self._most - 1 :]:
            if labels_of(one.report):
                continue
            log.info("comparison %s is removed: %s newer ones are kept", one.id, self._most)
            self._path(one.id).unlink(missing_ok=True)

    def read(self, id_: str) -> KeptComparison | None:
        """Comparison of an id; None where there is none.

        Raises
        ------
        OutriderError
            If its file is damaged.
        """
        if not _ID.fullmatch(id_):
            return None
        path = self._path(id_)
        try:
            return msgspec.json.decode(path.read_bytes(), type=KeptComparison)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise OutriderError(f"{FOLDER}/{path.name} holds no comparison ({error}): remove it") from None

    def newest(self, most: int) -> list[KeptComparison]:
        """Comparisons that were kept or labelled last, newest first.

        Damaged files are logged.
        """
        found = []
        for path in sorted(self._paths(), key=_changed_s, reverse=True)[:most]:
            try:
                found.append(self.read(path.stem))
            except (OSError, OutriderError) as error:
                log.warning("%s", error)
        return sorted((one for one in found if one is not None), key=lambda one: one.kept_us, reverse=True)

    def change(self, id_: str, changed: Callable[[ComparisonFound], ComparisonFound | None]) -> bool:
        """Replace a report by its changed form; False without either."""
        with self._lock:
            found = self.read(id_)
            report = None if found is None else changed(found.report)
            if found is None or report is None:
                return False
            self._write(KeptComparison(id_, found.kept_us, report))
            return True

    def _write(self, found: KeptComparison) -> None:
        write_whole(self._path(found.id), msgspec.json.encode(found).decode())

    def _make_folder(self) -> None:
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.glob("*.json") if _ID.fullmatch(path.stem)]

    def _path(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def labels_of(report: ComparisonFound) -> int:
    """Number of labelled pairs."""
    return sum(pair["right"] is not None for each in report["candidates"] for pair in each["to_label"])


def _changed_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # just removed
        return 0.0
