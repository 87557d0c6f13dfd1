"""Consistency: an object keeps its attributes, without flicker or short appearances."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import entity_codes, plain
from outrider.assertions.findings import CorrectionKind, Findings, WeakLabels
from outrider.assertions.windows.window import Window

from .boxes import SIDES
from .calibration import Calibration
from .scene import REACH, REACH_TRACKED, Objects, Runs, Seen, objects_of, seen_by_id
from .sightings import SCORE_UNITS
from .tracker import Tracker

Check = Literal["attributes", "flicker", "appear"]
Element = Mapping[str, Any]
Interpolate = Callable[[Element, Element, float], Any]
ALGORITHM = 2
"""Version of the algorithm, part of every revision; increment when equal records could give other results."""
SLACK_S = 1e-3
NUMBERS = (int, float)
TRUSTED, TRUSTED_UNCALIBRATED = 0.7, 0.5
"""Default minimum mean probability (mean score, if uncalibrated) of an object considered real."""


def linear(before: Element, after: Element, fraction: float) -> dict[str, Any]:
    """Element interpolated between two sightings of one object.

    Numbers are interpolated linearly; other values come from the nearer sighting.

    Examples
    --------
    >>> linear({"left": 10.0, "kind": "car"}, {"left": 14.0, "kind": "van"}, 0.25)
    {'left': 11.0, 'kind': 'car'}
    """
    between = dict(before if fraction <= 0.5 else after)
    for name, value in before.items():
        other: Any = after.get(name)
        if type(value) in NUMBERS and type(other) in NUMBERS:  # a bool is no number here
            there = (1 - fraction) * value + fraction * other
            between[name] = round(there) if type(value) is int and type(other) is int else there
    return between


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Assertions that an object keeps its attributes and does not flicker.

    One per attribute (same object, same value), one for flicker, one for short appearances.

    Over records, ``id`` names the column that identifies an object, such as the predicted class of a
    patient's heartbeat: a class that comes and goes within seconds is an error. Over lists
    (``explode="outputs.detections"``: one record is one frame), ``id`` is a field of the elements, or a
    ``tracker`` identifies them. A checker accepts it like an assertion; it expands to

    - ``<name>.<attribute>``: the value is not the one that most sightings of the object have from
      ``within`` before to ``within`` after. Correction: the majority's value, its share as confidence. If a
      value changes permanently, the first record with the new value is flagged, without correction.
    - ``<name>.flicker``: gone and back within ``within``; members are the frames of the gap. Correction:
      the interpolated element, added to each of them; for records, the object's id replaces the answer.
    - ``<name>.appear``: present for less than ``within``, absent before and after. Correction, only where
      ``corrects`` names it: the elements removed; for records, the id around them, where it is the same on
      both sides.

    Corrections become weak labels, and wrong ones do harm: without ``calibration`` there are flags only.

    Checks that need later records are decided once these have arrived, at most three times ``within`` later,
    or when the stream ends. Events still open when a stream is silent for more than twice ``within`` are not
    judged.

    Attributes
    ----------
    within
        Seconds of event time.
    id
        Full column name, or field of the elements (plain values: the name of the list); None with a tracker.
    attributes
        Full column names, or fields of the elements.
    by
        Column that names the stream (camera, patient, user).
    explode
        Full name of a list column, for example of detections.
    name
        First part of the assertions' names; the last part of ``explode`` or ``id`` by default.
    tracker
        Identifies objects if the model gives no id; reads ``box`` and ``score``.
    interpolate
        Function ``(before, after, fraction) -> element`` that fills a gap; default :func:`linear`.
    score
        Field of the elements (or column) with the model's confidence in [0, 1]; any unit with
        ``calibration``.
    calibration
        Maps scores to probabilities, from labelled boxes (:func:`calibrate_boxes`) or labels
        (:meth:`Calibration.fit`): ``trusted``, the tracker and the confidence of corrections use these
        probabilities.
    trusted
        With ``calibration``, the wanted precision: only gaps of objects whose mean probability around them is
        at least this (default 0.7) are flicker, and only short-lived objects below one minus it are
        appearances. With ``score`` alone: objects whose mean score around a gap is at least this (default
        0.5) are considered real, and only their gaps are flicker; only short-lived ones below it are
        appearances.
    corrects
        Which checks propose corrections; with ``calibration`` attributes and flicker by default, without it
        none.
    box
        Fields of the elements that a tracker reads: left, top, width, height.
    checks
        Kinds of checks to include; attributes always, flicker and appear by default.
    lateness_s
        See :class:`Window`.

    References
    ----------
    Kang et al., "Model Assertions for Monitoring and Improving ML Models", MLSys 2020, §4.

    Examples
    --------
    >>> from outrider.assertions import Batch, Checker
    >>> label = ["N", "N", "A", "N", "N"]
    >>> times = [f"2026-01-05T10:00:{s:02}Z" for s in range(0, 50, 10)]
    >>> beats = [{"entity": "p1", "ts": t, "outputs": {"label": l}} for t, l in zip(times, label)]
    >>> steady = Consistency(id="outputs.label", within=30)
    >>> Checker([steady]).check(Batch.from_records(beats, model="ecg")).counts
    {'label.flicker': 1, 'label.appear': 1}
    """

    within: float
    id: str | None = None
    attributes: Sequence[str] = ()
    by: str = "entity"
    explode: str | None = None
    name: str | None = None
    tracker: Tracker | None = None
    interpolate: Interpolate | None = field(default=None, repr=False)
    score: str | None = None
    calibration: Calibration | None = None
    trusted: float | None = None
    corrects: Sequence[Check] | None = None
    box: tuple[str, str, str, str] = SIDES
    checks: Sequence[Check] = ("attributes", "flicker", "appear")
    level: Level = "warning"
    lateness_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.within > 0:
            raise ValueError(f"within must be > 0 seconds, got {self.within}")
        if (self.id is None) == (self.tracker is None):
            raise ValueError(
                f"either id= names the object or tracker= finds it, got id={self.id!r} and "
                f"tracker={self.tracker!r}"
            )
        if self.tracker is not None and self.explode is None:
            raise ValueError("a tracker follows the elements of a list: say explode='outputs.<boxes>'")
        if any(isinstance(names, str) for names in (self.attributes, self.checks, self.corrects)):
            raise TypeError("attributes, checks and corrects must be lists of names, got one text")
        unknown = {*self.checks, *(self.corrects or ())} - {"attributes", "flicker", "appear"}
        if unknown:
            raise ValueError(f"checks are attributes, flicker and appear, got {sorted(unknown)}")
        if self.calibration is not None and self.score is None:
            raise ValueError("calibration= says what a score is worth: say which field it is, score='...'")
        if self.calibration is not None and not 0 <= self.least_trusted <= 1:
            raise ValueError(f"trusted is a chance in [0, 1] with calibration=, got {self.trusted}")

    @property
    def title(self) -> str:
        """First part of the assertions' names."""
        return self.name or (self.explode or self.id or "").rpartition(".")[2]

    @property
    def least_trusted(self) -> float:
        """Minimum mean probability (or score) of an object considered real."""
        if self.trusted is not None:
            return self.trusted
        return TRUSTED_UNCALIBRATED if self.calibration is None else TRUSTED

    @property
    def most_doubtful(self) -> float:
        """Mean probability (or score) below which a short-lived object is an appearance."""
        if self.score is None:
            return np.inf
        if self.calibration is None:
            return self.least_trusted
        return min(self.least_trusted, 1 - self.least_trusted)

    def proposes(self, check: Check) -> bool:
        """True if findings of this check come with corrections."""
        if self.corrects is not None:
            return check in self.corrects
        return self.calibration is not None and check != "appear"

    @property
    def window(self) -> Window:
        """Window that all its assertions use."""
        reach = REACH if self.tracker is None else REACH_TRACKED
        columns = (self.explode,) if self.explode is not None else (self.id, *self.attributes, self.score)
        return Window(
            by=self.by,
            seconds=reach * self.within + SLACK_S,
            columns=tuple(dict.fromkeys(name for name in columns if name is not None)),
            lateness_s=self.lateness_s,
            idle_s=max(60.0, 2 * self.within, 2 * self.lateness_s),
        )

    @cached_property
    def assertions(self) -> tuple[Assertion, ...]:
        """Assertions that this rule expands to."""
        runs = None if self.tracker is None else Runs(self.tracker)
        rule = replace(self)  # without the assertions themselves, which are no part of their revisions
        made: list[tuple[str, str, _Judge]] = []
        for name in self.attributes if "attributes" in self.checks else ():
            short = name.rpartition(".")[2]
            text = f"The same {self._noun} has the same {short} within {self.within:g} s."
            made.append((short, text, _Deviation(rule, runs, name)))
        if "flicker" in self.checks:
            text = f"No {self._noun} is gone and back within {self.within:g} s."
            made.append(("flicker", text, _Flicker(rule, runs)))
        if "appear" in self.checks:
            text = f"No {self._noun} is there for less than {self.within:g} s."
            made.append(("appear", text, _Appear(rule, runs)))
        return tuple(
            assertion(name=f"{self.title}.{part}", level=self.level, description=text, window=self.window)(
                judge
            )
            for part, text, judge in made
        )

    def named(self, name: str) -> Assertion:
        """The only assertion of a rule with one check, renamed."""
        (only,) = self.assertions
        return replace(only, name=name)

    @property
    def _noun(self) -> str:
        return self.title if self.explode is None else f"object of {self.title}"


@dataclass(frozen=True)
class _Scene:
    """A view, its objects, and how their subjects are named."""

    rule: Consistency
    view: Batch
    objects: Objects
    seen: Seen

    @cached_property
    def keys(self) -> list[str]:
        return [str(key) for key in self.view.keys.tolist()]

    @cached_property
    def entities(self) -> list[Any]:
        by = self.rule.by
        return self.view.column(by, null=None).tolist() if self.view.has(by) else [None] * self.view.rows

    @cached_property
    def names(self) -> list[Any]:
        """Name of each object: its id, or row and position of the first box that the tracker saw."""
        if self.rule.tracker is None:
            return list(self.seen.names)
        return [f"{self.keys[row]}.{position}" for row, position in self.seen.names]

    def subject(self, row: int, thing: int, event: str) -> str:
        """Subject ``entity/object/event``, independent of how the stream is cut into batches."""
        entity = self.entities[row]
        return f"{'' if entity is None else entity}/{self.names[thing]}/{event}"

    def elements(self, at: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Fields of some elements as JSON-compatible values."""
        names = list(self.objects.columns)
        place = pa.array(at)
        values = (plain(column.take(place), name) for name, column in self.objects.columns.items())
        return [dict(zip(names, line, strict=True)) for line in zip(*values, strict=True)]


class _Judge:
    """Base class of the checks; its attributes are part of their revision."""

    def __init__(self, rule: Consistency, runs: Runs | None, attribute: str = "") -> None:
        self.rule = rule
        self.attribute = attribute
        self.algorithm = ALGORITHM
        # The method, not the object: what a tracker remembers is no part of the revision.
        self._tracked = None if runs is None else runs.seen

    def __call__(self, view: Batch) -> Findings:
        if not view.rows:
            return Findings(np.zeros(0, dtype=np.int64), np.zeros(0))
        return self.find(self._scene(view))

    def find(self, scene: _Scene) -> Findings:
        raise NotImplementedError

    def _scene(self, view: Batch) -> _Scene:
        rule = self.rule
        within = round(rule.within * 1e6)
        asked = [name for name in (rule.id, *rule.attributes, rule.score) if name is not None]
        objects = objects_of(view, rule.explode, asked)
        score = np.zeros(0, dtype=np.int64)
        if rule.score is not None:
            given = objects.numbers(rule.score)
            sure = np.nan_to_num(given) if rule.calibration is None else rule.calibration(given)
            score = np.rint(sure * SCORE_UNITS).astype(np.int64)
        if self._tracked is None:
            seen = seen_by_id(view, objects, objects.column(rule.id or ""), score, within)
        else:
            boxes = objects.sides(rule.box, rule.explode or "")
            seen = self._tracked(view, objects, boxes, score, within)
        return _Scene(rule, view, objects, seen)


class _Flicker(_Judge):
    """Check for objects that disappear and come back."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule = scene.seen, scene.rule
        sightings = seen.sightings
        gaps = sightings.gaps(trusted=rule.least_trusted)
        gaps = gaps.where(seen.begins[sightings.frame[gaps.before]])
        starts, stops = sightings.frame[gaps.before], sightings.frame[gaps.after]
        gone_s = (sightings.time[stops] - sightings.time[starts]) / 1e6
        befores, afters = (scene.elements(seen.element[side]) for side in (gaps.before, gaps.after))
        things, confidences = sightings.object[gaps.before].tolist(), _sure(gaps.sureness, gaps.share)
        found = _Found()
        for index, thing in enumerate(things):
            frames = slice(starts[index] + 1, stops[index])
            rows = seen.row[frames]
            first, confidence = int(rows[0]), confidences[index]
            evidence = {"object": scene.names[thing], "gone_s": float(gone_s[index]), "frames": len(rows)}
            found.add(rows, scene.subject(first, thing, f"flicker/{scene.keys[first]}"), evidence, confidence)
            if not rule.proposes("flicker"):
                continue
            time = sightings.time[starts[index] : stops[index] + 1]
            for row, between in zip(rows.tolist(), _fractions(time), strict=True):
                value = self._between(befores[index], afters[index], between)
                if rule.explode is None:
                    found.correct(row, "replace", rule.id or "", -1, value, confidence)
                else:
                    found.correct(row, "add", rule.explode, -1, value, confidence)
        return found.findings()

    def _between(self, before: Element, after: Element, fraction: float) -> Any:
        rule = self.rule
        if rule.explode is None:
            return before[rule.id or ""]
        if rule.explode in before:  # plain values, not structs
            return before[rule.explode]
        if rule.interpolate is not None:
            return rule.interpolate(before, after, fraction)
        value, nearer = linear(before, after, fraction), before if fraction <= 0.5 else after
        for name in (rule.id, *rule.attributes):  # numbers too: there is nothing between class 1 and class 3
            if name is not None:
                value[name] = nearer[name]
        return value


class _Appear(_Judge):
    """Check for objects that are present only briefly."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule = scene.seen, scene.rule
        sightings = seen.sightings
        blips = sightings.blips(trusted=rule.most_doubtful)
        blips = blips.where(seen.begins[sightings.frame[sightings.order[blips.start]]])
        ids = None if rule.explode is not None else plain(scene.objects.column(rule.id or ""), rule.id or "")
        confidences = _sure(1 - blips.sureness, blips.share)
        found = _Found()
        for index, (start, stop) in enumerate(zip(blips.start.tolist(), blips.stop.tolist(), strict=True)):
            members = sightings.order[start:stop]
            frames = np.unique(sightings.frame[members])
            rows = seen.row[frames]
            thing, first, confidence = int(sightings.object[members[0]]), int(rows[0]), confidences[index]
            there_s = float(sightings.time[frames[-1]] - sightings.time[frames[0]]) / 1e6
            evidence = {"object": scene.names[thing], "there_s": there_s, "frames": len(rows)}
            found.add(rows, scene.subject(first, thing, f"appear/{scene.keys[first]}"), evidence, confidence)
            if not rule.proposes("appear"):
                continue
            if ids is None:
                for member in seen.element[members].tolist():
                    row, position = int(scene.objects.row[member]), int(scene.objects.position[member])
                    found.correct(row, "remove", rule.explode or "", position, None, confidence)
                continue
            before, after = ids[first - 1], ids[int(rows[-1]) + 1]
            if before == after and before is not None:
                for row in rows.tolist():
                    found.correct(row, "replace", rule.id or "", -1, before, confidence)
        return found.findings()


class _Deviation(_Judge):
    """Check for values that differ from the object's other sightings."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule, name = scene.seen, scene.rule, self.attribute
        codes, values = entity_codes(scene.objects.column(name))
        deviations = seen.sightings.deviations(codes[seen.element])
        deviations = deviations.where(seen.begins[seen.sightings.frame[deviations.element]])
        element = seen.element[deviations.element]
        things, shares = seen.sightings.object[deviations.element].tolist(), deviations.share.tolist()
        lists = rule.explode is not None and rule.explode not in scene.objects.columns
        lines = scene.elements(element) if lists else [{}] * len(element)
        short, found = name.rpartition(".")[2], _Found()
        for index, (at, majority) in enumerate(
            zip(element.tolist(), deviations.majority.tolist(), strict=True)
        ):
            row, position = int(scene.objects.row[at]), int(scene.objects.position[at])
            event = f"{short}/{scene.keys[row]}.{position}"
            subject = scene.subject(row, things[index], event) if rule.explode is not None else None
            evidence = {
                "object": scene.names[things[index]],
                short: values[codes[at]],
                "share": shares[index],
            }
            found.add(np.array([row]), subject, evidence, shares[index])
            if majority >= 0:
                evidence["majority"] = values[majority]
                if not rule.proposes("attributes"):
                    continue
                value = lines[index] | {name: values[majority]} if lists else values[majority]
                found.correct(row, "replace", rule.explode or name, position, value, shares[index])
        return found.findings()


def _sure(sureness: NDArray[np.float64], share: NDArray[np.float64]) -> list[float]:
    """Confidence in (0, 1]: the model's mean score, or without scores the share of frames in favour."""
    known = np.where(np.isnan(sureness), share, sureness)
    confidence: list[float] = np.clip(known, 1e-6, 1.0).tolist()
    return confidence


def _fractions(time: NDArray[np.int64]) -> list[float]:
    """Positions of the frames between the first and the last, scaled to [0, 1]."""
    whole = int(time[-1] - time[0])
    return [int(one - time[0]) / whole if whole else 0.5 for one in time[1:-1]]


class _Found:
    """Collector of findings and weak labels."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.severity: list[float] = []
        self.subject: list[str | None] = []
        self.members: list[NDArray[np.int64]] = []
        self.evidence: list[dict[str, Any] | None] = []
        self.corrections: list[tuple[int, int, CorrectionKind, str, int, Any, float]] = []

    def add(
        self, rows: NDArray[np.int64], subject: str | None, evidence: dict[str, Any], severity: float
    ) -> None:
        self.rows.append(int(rows[0]))
        self.severity.append(severity)
        self.subject.append(subject)
        self.members.append(rows)
        self.evidence.append(evidence)

    def correct(
        self, row: int, kind: CorrectionKind, name: str, element: int, value: Any, confidence: float
    ) -> None:
        """Add a correction to the latest finding."""
        self.corrections.append((row, len(self.rows) - 1, kind, name, element, value, confidence))

    def findings(self) -> Findings:
        return Findings(
            row=np.array(self.rows, dtype=np.int64),
            severity=np.array(self.severity, dtype=np.float64),
            subject=self.subject,
            members=self.members,
            evidence=self.evidence,
            weak_labels=self._weak_labels(),
        )

    def _weak_labels(self) -> WeakLabels:
        if not self.corrections:
            return WeakLabels.none()
        row, finding, kind, name, element, value, confidence = zip(*self.corrections, strict=True)
        return WeakLabels(
            np.array(row, dtype=np.int64),
            np.array(finding, dtype=np.int64),
            kind,
            name,
            np.array(element, dtype=np.int64),
            value,
            np.array(confidence, dtype=np.float64),
        )
