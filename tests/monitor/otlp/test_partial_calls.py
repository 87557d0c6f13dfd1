"""Parts that wait are bounded, are told apart, and are the same after a restart."""

import zlib
from typing import Any

import msgspec
import pytest

from outrider.dataops.journal.notes import Note
from outrider.monitor.intake.protocols.otlp import intake, partial_calls
from outrider.monitor.intake.protocols.otlp.call import Call, merged
from outrider.monitor.intake.protocols.otlp.matching import Matcher, Named
from outrider.monitor.intake.protocols.otlp.partial_calls import Met, Passages, Waiting
from outrider.monitor.intake.rejections import Rejections

JOIN_US = 30_000_000
SECOND_US = 1_000_000


def new(notes: Any = ()) -> Waiting:
    return Waiting(lambda _: JOIN_US, notes)


def question(number: int = 1, text: str = "Hi", at: int = 1) -> Call:
    asked = [{"role": "user", "content": text}]
    return Call(id=f"t-{number}", trace="t", start_us=at, inputs=asked, has_inputs=True)


def answer(number: int = 1) -> Call:
    return Call(id=f"t-{number}", trace="t", answer={"content": "Hello"}, has_outputs=True)


def ended(number: int = 1, **more: Any) -> Call:
    return Call(id=f"t-{number}", trace="t", start_us=1, is_span=True, **more)


def whole(number: int = 1) -> Call:
    return ended(number, has_inputs=True, has_outputs=True)


def take(of: Waiting, *calls: Call, now_us: int = 0) -> Met:
    met = of.meet(calls, (), now_us)
    of.committed(met)
    return met


def texts(of: Waiting, call: Call) -> list[str]:
    return of.passages(call, partial_calls.MOST_TRACE_BYTES)[0]


def kept(*mets: Met) -> dict[str, Note]:
    """What the journal holds behind these commits."""
    notes: dict[str, Note] = {}
    for met in mets:
        for name in met.remove:
            notes.pop(name, None)
        notes |= {note.name: note for note in met.put}
    return notes


def test_single_messages_add_up_in_the_order_of_their_times() -> None:
    of = new()
    take(of, question(text="second", at=2), question(text="first", at=1))
    take(of, answer())
    ((call, is_partial),) = take(of, ended()).calls
    assert [message["content"] for message in call.inputs] == ["first", "second"]
    assert not is_partial


def test_after_a_restart_the_parts_join_as_before() -> None:
    before = new()
    mets = [take(before, question()), take(before, answer())]
    after = new(kept(*mets).values())
    joined = take(after, ended())
    assert [call.is_whole for call, _ in joined.calls] == [True]
    assert kept(*mets, joined) == {}


def test_a_note_whose_bytes_have_changed_is_dropped_and_removed() -> None:
    met = take(new(), question())
    (note,) = met.put
    broken = Note(note.name, note.received_us, note.payload[:-1] + b"\0")
    of = new([broken, Note("strange", 0, b"")])
    due = of.due(10 * JOIN_US)
    assert due.calls == []
    assert sorted(due.remove) == sorted([note.name, "strange"])


def test_a_note_written_behind_its_call_is_removed_by_the_next_commit() -> None:
    of = new()
    late_commit = of.meet([question()], (), 0)
    joined = take(of, answer(), ended())
    assert [call.is_whole for call, _ in joined.calls] == [True]
    of.committed(late_commit)  # its request was read first and written last
    due = of.due(0)
    assert kept(joined, late_commit, due) == {}


def test_what_was_not_committed_joins_again_and_is_removed_later() -> None:
    of = new()
    first = take(of, question(), answer())
    refused = of.meet([ended()], (), 0)
    of.failed(refused)
    again = take(of, ended())
    assert [call.is_whole for call, _ in again.calls] == [True]
    assert kept(first, again, of.due(0)) == {}
    assert of.due(10 * JOIN_US).calls == []


def test_a_span_that_has_ended_ends_the_patience_with_its_questions() -> None:
    of = new()
    take(of, question(), now_us=0)
    assert of.due(JOIN_US + 1).calls == []
    take(of, ended(), now_us=100 * SECOND_US)
    assert of.due(100 * SECOND_US + JOIN_US - 1).calls == []
    assert [is_partial for _, is_partial in of.due(100 * SECOND_US + JOIN_US).calls] == [True]


def test_passages_go_to_calls_that_began_later_and_are_forgotten_in_time() -> None:
    of = new()
    found = [Passages("t", "b", 5, ["later"]), Passages("t", "a", 1, ["one", "two"])]
    of.committed(of.meet((), found, 0))
    assert texts(of, ended()) == ["one", "two"]
    assert texts(of, Call(trace="t", start_us=9)) == ["one", "two", "later"]
    assert texts(of, Call(trace="other", start_us=9)) == []
    due = of.due(int(partial_calls.OPEN_S * 1e6))
    assert len(due.remove) == 2
    assert texts(of, Call(trace="t", start_us=9)) == []


def test_passages_are_known_when_their_span_has_ended() -> None:
    of = new()
    found = [
        Passages("t", "tool", 1, ["of the tool"], end_us=9),
        Passages("t", "shelf", 3, ["found"], end_us=5),
    ]
    of.committed(of.meet((), found, 0))
    assert texts(of, Call(trace="t", start_us=4)) == []
    assert texts(of, Call(trace="t", start_us=5)) == ["found"]
    assert texts(of, Call(trace="t", start_us=9)) == ["found", "of the tool"]


def test_passages_of_notes_without_an_end_are_read_as_before() -> None:
    packed = msgspec.msgpack.encode({"trace": "t", "span": "a", "start_us": 3, "texts": ["one"]})
    note = Note("passages:t-a", 0, zlib.crc32(packed).to_bytes(4, "big") + packed)
    assert texts(new([note]), Call(trace="t", start_us=3)) == ["one"]


def test_memory_is_bounded_by_giving_up_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_calls, "MOST_BYTES", 100_000)
    of = new()
    take(of, *(question(number) for number in range(200)))
    of.committed(of.meet((), [Passages("t", f"{number}", 0, ["x" * 1000]) for number in range(200)], 0))
    due = of.due(0)
    of.committed(due)
    given_up = [int(call.id.removeprefix("t-")) for call, _ in due.calls]
    assert given_up == list(range(len(given_up)))
    assert 100 < len(given_up) < 200
    assert 0 < len(texts(of, ended())) < 50
    assert of.due(0).calls == []


def test_parts_of_a_call_are_put_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(parts: list[Call]) -> Call:
        asked.append(len(parts))
        return merged(parts)

    monkeypatch.setattr(partial_calls, "merged", counted)
    of = new()
    met = take(of, *(question(text=str(number), at=number) for number in range(500)), answer(), ended())
    ((call, is_partial),) = met.calls
    assert (len(call.inputs), is_partial, asked) == (500, False, [502])


def test_a_call_of_too_many_parts_refuses_the_rest_and_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_calls, "MOST_PARTS", 10)
    of = new()
    met = take(of, *(question(text=str(number), at=number) for number in range(12)))
    assert (met.waiting, [reason for _, reason in met.unfit]) == (
        10, ["it has more than 10 parts that wait for its span"] * 2,
    )  # fmt: skip
    ((call, _),) = take(of, ended(has_outputs=True)).calls
    assert [message["content"] for message in call.inputs] == [str(number) for number in range(10)]


def test_a_trace_keeps_its_newest_passages_and_writes_no_others() -> None:
    of = new()
    most = partial_calls.MOST_TRACE_SPANS
    found = [Passages("t", str(number), number, [str(number)]) for number in range(most + 5)]
    met = of.meet((), found, 0)
    of.committed(met)
    newest = [str(number) for number in range(5, most + 5)]
    assert texts(of, Call(trace="t", start_us=2**40)) == newest
    assert [note.name.removeprefix("passages:t-") for note in kept(met).values()] == newest
    later = of.meet((), [Passages("t", "more", 2**39, ["more"])], 0)
    assert "passages:t-5" not in kept(met, later)
    assert texts(new(kept(met, later).values()), Call(trace="t", start_us=2**40))[-1] == "more"


def test_empty_passages_count_for_what_they_take() -> None:
    of = new()
    of.meet((), [Passages("t", "a", 1, [""] * 100_000)], 0)
    assert texts(of, Call(trace="t", start_us=9)) == []
    of.meet((), [Passages("t", "b", 1, ["x" * partial_calls.MOST_TRACE_BYTES])], 0)
    assert texts(of, Call(trace="t", start_us=9)) == []


def test_passages_of_one_export_are_bounded_in_all_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MOST_PASSAGES_BYTES", 30_000)
    of = new()
    of.meet((), [Passages("t", "a", 0, ["x" * 10_000])], 0)
    calls = [(number, whole(number), False) for number in range(4)]
    rows, bare = intake.rows_of(calls, Matcher({"m": Named()}), of, Rejections())
    given = ["inputs.passages" in row.fields for row in next(iter(rows.values()))]
    assert (given, bare) == ([True, True, False, False], 2)


def test_what_is_done_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_calls, "MOST_DONE", 10)
    of = new()
    take(of, *(whole(number) for number in range(20)))
    assert take(of, question(19)).late == 1
    assert take(of, question(0)).waiting == 1


def test_numbers_that_cannot_be_kept_refuse_their_part_alone() -> None:
    of = new()
    strange = question(1)
    strange.inputs = [{"role": "user", "content": 2**80}]
    met = take(of, strange, question(2))
    ((call, reason),) = met.unfit
    assert (call.id, met.waiting) == ("t-1", 1)
    assert "cannot be kept" in reason


@pytest.mark.parametrize("more", [{}, {"has_inputs": True, "has_outputs": True}])
def test_a_span_that_comes_while_its_questions_are_given_up_is_a_record_of_its_own(more: Any) -> None:
    of = new()
    asked = take(of, question())
    due = of.due(700 * SECOND_US)
    came = of.meet([ended(**more)], (), 700 * SECOND_US)
    of.committed(due)
    of.committed(came)
    assert [(call.id, is_partial) for call, is_partial in due.calls + came.calls] == [
        ("t-1", True),
        ("t-1:span", True),
    ]
    assert kept(asked, due, came) == {}
