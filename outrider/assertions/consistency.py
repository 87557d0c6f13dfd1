"""Consistency: what has one identity keeps its attributes, and neither flickers nor appears for a moment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .assertion import Assertion, Level, assertion, revision_of
from .batch import Batch
from .columns import entity_codes, plain
from .findings import CorrectionKind, Findings, WeakLabels
from .scene import REACH, REACH_TRACKED, Objects, Runs, Seen, objects_of, seen_by_id
from .sightings import SCORE_UNITS
from .tracker import Tracker
from .window import Window

Check = Literal["attributes", "flicker", "appear"]
Element = Mapping[str, Any]
Interpolate = Callable[[Element, Element, float], Any]
ALGORITHM = 1
"""Part of every revision; one more whenever the same records could get other findings."""
SLACK_S = 1e-3


def linear(before: Element, after: Element, fraction: float) -> dict[str, Any]:
    """Element between two of the same object: numbers in proportion, all else from the nearer one.

    Examples
    --------
    >>> linear({"left": 10.0, "kind": "car"}, {"left": 14.0, "kind": "van"}, 0.25)
    {'left': 11.0, 'kind': 'car'}
    """
    nearer = before if fraction <= 0.5 else after
    between = dict(nearer)
    for name, value in before.items():
        pair = value, after.get(name)
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in pair):
            there = (1 - fraction) * pair[0] + fraction * pair[1]
            between[name] = there if any(isinstance(one, float) for one in pair) else round(there)
    return between


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """One assertion per attribute (same object, same value), one for flicker, one for appearances of a moment.

    Over records, ``id`` names the column that identifies an object, such as the predicted class of a
    patient's heartbeat: a class that comes and goes within seconds is an error. Over lists
    (``explode="outputs.detections"``: one record is one frame), ``id`` is a field of the elements, or a
    ``tracker`` tells them apart. A checker takes it like an assertion; it becomes

    - ``<name>.<attribute>``: the value is not the one that most sightings of the object have from
      ``within`` before to ``within`` after. Correction: the majority's value, its share as confidence.
      Where a value changes for good, the first record with the new value is found, without correction.
    - ``<name>.flicker``: gone and back within ``within``; members are the frames of the gap. Correction:
      the element in between, added to each of them; for records, the object's id in place of what was said.
    - ``<name>.appear``: there for less than ``within``, gone before and after. Correction: the elements
      removed; for records, the id around them, where it is the same on both sides.

    What needs the future is found when it has come, at most three times ``within`` later, or when the
    stream ends. What was open when a stream was silent for more than twice ``within`` is not judged.

    Attributes
    ----------
    within
        Seconds of event time.
    id
        Full column name, or field of the elements; None with a tracker.
    attributes
        Full column names, or fields of the elements.
    by
        Column that names the stream (camera, patient, user).
    explode
        Full name of a list column, for example of detections.
    name
        First part of the assertions' names; the last part of ``explode`` or ``id`` by default.
    tracker
        Identity where the model gives none, from ``box`` and ``score``.
    interpolate
        Element between two of one object: ``(before, after, fraction) -> element``; :func:`linear` by default.
    score
        Field of the elements (or column) with the model's own sureness in [0, 1].
    trusted
        With ``score``: objects whose mean score around a gap is at least this are taken to be real, and only
        their gaps are flicker; only shorter-lived objects below it are appearances.
    box
        Fields of the elements that a tracker reads: left, top, width, height.
    checks
        Which of the kinds to expand to; attributes always, flicker and appear by default.
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
    trusted: float = 0.5
    box: tuple[str, str, str, str] = ("left", "top", "width", "height")
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
        if isinstance(self.attributes, str) or isinstance(self.checks, str):
            raise TypeError("attributes and checks must be lists of names, got one text")
        unknown = set(self.checks) - {"attributes", "flicker", "appear"}
        if unknown:
            raise ValueError(f"checks are attributes, flicker and appear, got {sorted(unknown)}")

    @property
    def title(self) -> str:
        """First part of the assertions' names."""
        return self.name or (self.explode or self.id or "").rpartition(".")[2]

    @property
    def window(self) -> Window:
        """What all assertions of this one see."""
        reach = REACH if self.tracker is None else REACH_TRACKED
        columns = (self.explode,) if self.explode is not None else (self.id, *self.attributes, self.score)
        return Window(
            by=self.by,
            seconds=reach * self.within + SLACK_S,
            columns=tuple(dict.fromkeys(name for name in columns if name is not None)),
            lateness_s=self.lateness_s,
            idle_s=max(60.0, 2 * self.within, 2 * self.lateness_s),
        )

    @property
    def assertions(self) -> tuple[Assertion, ...]:
        """The assertions that this one stands for."""
        runs = None if self.tracker is None else Runs(self.tracker)
        made = []
        for name in self.attributes if "attributes" in self.checks else ():
            short = name.rpartition(".")[2]
            text = f"The same {self._noun} has the same {short} within {self.within:g} s."
            made.append((short, text, _Deviation(self, runs, name)))
        if "flicker" in self.checks:
            text = f"No {self._noun} is gone and back within {self.within:g} s."
            made.append(("flicker", text, _Flicker(self, runs)))
        if "appear" in self.checks:
            text = f"No {self._noun} is there for less than {self.within:g} s."
            made.append(("appear", text, _Appear(self, runs)))
        return tuple(
            assertion(name=f"{self.title}.{part}", level=self.level, description=text, window=self.window)(judge)
            for part, text, judge in made
        )

    @property
    def _noun(self) -> str:
        return self.title if self.explode is None else f"object of {self.title}"


class _Corrections:
    """Weak labels while they are collected."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, int, CorrectionKind, str, int, Any, float]] = []

    def add(
        self, row: int, finding: int, kind: CorrectionKind, name: str, element: int, value: Any, confidence: float
    ) -> None:
        self.lines.append((row, finding, kind, name, element, value, confidence))

    def weak_labels(self) -> WeakLabels:
        if not self.lines:
            return WeakLabels.none()
        row, finding, kind, name, element, value, confidence = zip(*self.lines, strict=True)
        return WeakLabels(
            np.array(row, dtype=np.int64),
            np.array(finding, dtype=np.int64),
            kind,
            name,
            np.array(element, dtype=np.int64),
            value,
            np.array(confidence, dtype=np.float64),
        )


@dataclass(frozen=True)
class _Scene:
    """A view, its objects, and how to say what they are."""

    rule: Consistency
    view: Batch
    objects: Objects
    seen: Seen

    def key(self, row: int) -> str:
        return str(self.view.keys[row])

    def subject(self, row: int, thing: int, event: str) -> str:
        """``entity/object/event``: the same wherever the stream was cut."""
        entity = self.view.column(self.rule.by)[row] if self.view.has(self.rule.by) else None
        return f"{'' if entity is None else entity}/{self.name_of(thing)}/{event}"

    def name_of(self, thing: int) -> Any:
        """What the object is called: its id, or record and position of the box a tracker saw first."""
        name = self.seen.names[thing]
        return f"{self.key(name[0])}.{name[1]}" if self.rule.tracker is not None else name

    def element(self, index: int) -> dict[str, Any]:
        """Fields of an element as JSON can carry them."""
        return {
            name: plain(column.slice(index, 1), name)[0] for name, column in self.objects.columns.items()
        }


class _Judge:
    """What the judgements of one :class:`Consistency` share; its attributes are part of their revision."""

    def __init__(self, rule: Consistency, runs: Runs | None, attribute: str = "") -> None:
        self._rule = rule
        self._runs = runs
        self.attribute = attribute
        self.algorithm = ALGORITHM
        self.rule = repr(rule)
        self.interpolation = "" if rule.interpolate is None else revision_of(rule.interpolate, None)
        self.identity = "" if rule.tracker is None else revision_of(type(rule.tracker), None)  # type: ignore[arg-type]

    def __call__(self, view: Batch) -> Findings:
        if not view.rows:
            return Findings(np.zeros(0, dtype=np.int64), np.zeros(0))
        return self.find(self._scene(view))

    def find(self, scene: _Scene) -> Findings:
        raise NotImplementedError

    def _scene(self, view: Batch) -> _Scene:
        rule = self._rule
        within = round(rule.within * 1e6)
        asked = [name for name in (rule.id, *rule.attributes, rule.score) if name is not None]
        objects = objects_of(view, rule.explode, asked)
        score = np.zeros(0, dtype=np.int64)
        if rule.score is not None:
            sure = objects.columns[rule.score].to_numpy(zero_copy_only=False).astype(np.float64)
            score = np.rint(np.nan_to_num(sure) * SCORE_UNITS).astype(np.int64)
        if self._runs is None:
            seen = seen_by_id(view, objects, objects.columns[rule.id or ""], score, within)
        else:
            fields = [objects.columns[name].to_numpy(zero_copy_only=False) for name in rule.box]
            boxes = np.column_stack(fields).astype(np.float64)
            seen = self._runs.seen(view, objects, boxes, score, within)
        return _Scene(rule, view, objects, seen)


class _Flicker(_Judge):
    """Gone and back."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule = scene.seen, scene.rule
        gaps = seen.sightings.gaps(trusted=rule.trusted)
        frame = seen.sightings.frame
        kept = seen.begins[frame[gaps.before]]
        found = _Found(scene)
        for before, after, share, sure in zip(*(part[kept].tolist() for part in gaps), strict=True):
            start, stop = frame[before], frame[after]
            rows = seen.row[start + 1 : stop]
            gone_s = float(seen.sightings.time[stop] - seen.sightings.time[start]) / 1e6
            thing = int(seen.sightings.object[before])
            evidence = {"object": scene.name_of(thing), "gone_s": gone_s, "frames": len(rows)}
            confidence = share if np.isnan(sure) else min(max(sure, 1e-6), 1.0)
            found.add(rows, scene.subject(rows[0], thing, f"flicker/{scene.key(rows[0])}"), evidence, confidence)
            for row, kind, name, value in self._corrections(scene, before, after, thing):
                found.corrections.add(row, len(found.rows) - 1, kind, name, -1, value, confidence)
        return found.findings()

    def _corrections(
        self, scene: _Scene, before: int, after: int, thing: int
    ) -> Iterator[tuple[int, CorrectionKind, str, Any]]:
        seen, rule = scene.seen, scene.rule
        start, stop = seen.sightings.frame[before], seen.sightings.frame[after]
        rows = seen.row[start + 1 : stop].tolist()
        if rule.explode is None:
            name = scene.element(int(seen.element[before]))[rule.id or ""]
            yield from ((row, "replace", rule.id or "", name) for row in rows)
            return
        ends = [scene.element(int(seen.element[one])) for one in (before, after)]
        if rule.explode in ends[0]:  # plain values, not structs
            yield from ((row, "add", rule.explode, ends[0][rule.explode]) for row in rows)
            return
        time = seen.sightings.time
        same = {name: ends[0][name] for name in (rule.id, *rule.attributes) if name is not None}
        for index, row in enumerate(rows, start=int(start) + 1):
            fraction = float((time[index] - time[start]) / (time[stop] - time[start]))
            if rule.interpolate is not None:
                value = rule.interpolate(ends[0], ends[1], fraction)
            else:
                nearer = ends[0] if fraction <= 0.5 else ends[1]
                value = linear(ends[0], ends[1], fraction) | {name: nearer[name] for name in same}
            yield row, "add", rule.explode, value


class _Appear(_Judge):
    """There for a moment."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule = scene.seen, scene.rule
        sightings = seen.sightings
        blips = sightings.blips(trusted=rule.trusted if rule.score is not None else np.inf)
        kept = seen.begins[sightings.frame[sightings.order[blips.start]]]
        found = _Found(scene)
        for start, stop, share, sure in zip(*(part[kept].tolist() for part in blips), strict=True):
            members = sightings.order[start:stop]
            frames = np.unique(sightings.frame[members])
            rows = seen.row[frames]
            thing = int(sightings.object[members[0]])
            there_s = float(sightings.time[frames[-1]] - sightings.time[frames[0]]) / 1e6
            evidence = {"object": scene.name_of(thing), "there_s": there_s, "frames": len(rows)}
            confidence = share if np.isnan(sure) else min(max(1 - sure, 1e-6), 1.0)
            found.add(rows, scene.subject(rows[0], thing, f"appear/{scene.key(rows[0])}"), evidence, confidence)
            finding = len(found.rows) - 1
            if rule.explode is not None:
                for member in seen.element[members].tolist():
                    row, position = int(scene.objects.row[member]), int(scene.objects.position[member])
                    found.corrections.add(row, finding, "remove", rule.explode, position, None, confidence)
                continue
            around = [scene.element(int(seen.row[frame]))[rule.id or ""] for frame in (frames[0] - 1, frames[-1] + 1)]
            if around[0] == around[1] and around[0] is not None:
                for row in rows.tolist():
                    found.corrections.add(row, finding, "replace", rule.id or "", -1, around[0], confidence)
        return found.findings()


class _Deviation(_Judge):
    """Another value than the object's other sightings."""

    def find(self, scene: _Scene) -> Findings:
        seen, rule, name = scene.seen, scene.rule, self.attribute
        codes, values = entity_codes(scene.objects.columns[name])
        deviations = seen.sightings.deviations(codes[seen.element])
        kept = seen.begins[seen.sightings.frame[deviations.element]]
        found = _Found(scene)
        short = name.rpartition(".")[2]
        for one, majority, share in zip(*(part[kept].tolist() for part in deviations), strict=True):
            element = int(seen.element[one])
            row, position = int(scene.objects.row[element]), int(scene.objects.position[element])
            thing = int(seen.sightings.object[one])
            evidence = {"object": scene.name_of(thing), short: values[codes[element]], "share": share}
            subject = None
            if rule.explode is not None:
                subject = scene.subject(row, thing, f"{short}/{scene.key(row)}.{position}")
            found.add(np.array([row]), subject, evidence, share)
            if majority < 0:
                continue
            evidence["majority"] = values[majority]
            value = values[majority]
            if rule.explode is not None and rule.explode not in scene.objects.columns:
                value = scene.element(element) | {name: value}
            field = name if rule.explode is None else rule.explode
            found.corrections.add(row, len(found.rows) - 1, "replace", field, position, value, share)
        return found.findings()


class _Found:
    """Findings while they are collected."""

    def __init__(self, scene: _Scene) -> None:
        self.scene = scene
        self.rows: list[int] = []
        self.severity: list[float] = []
        self.subject: list[str | None] = []
        self.members: list[NDArray[np.int64]] = []
        self.evidence: list[dict[str, Any] | None] = []
        self.corrections = _Corrections()

    def add(
        self, rows: NDArray[np.int64], subject: str | None, evidence: dict[str, Any], severity: float
    ) -> None:
        self.rows.append(int(rows[0]))
        self.severity.append(severity)
        self.subject.append(subject)
        self.members.append(np.asarray(rows, dtype=np.int64))
        self.evidence.append(evidence)

    def findings(self) -> Findings:
        return Findings(
            row=np.array(self.rows, dtype=np.int64),
            severity=np.array(self.severity, dtype=np.float64),
            subject=self.subject,
            members=self.members,
            evidence=self.evidence,
            weak_labels=self.corrections.weak_labels(),
        )

