"""Profiles of minutes: gathered, written, rolled up and read."""

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.assertions.batch.columns import tensor_array
from outrider.assertions.comparison.typed_text import text_of
from outrider.assertions.profiling import Profile, ProfileLayout, merged
from outrider.dataops.erasure.state_rows import erase_rows_of, name_gone
from outrider.dataops.erasure.target import ErasureTarget, Found
from outrider.dataops.erasure.texts import Quotations
from outrider.dataops.ledger.profiles import (
    FIRST_ROWS,
    MINUTE_US,
    SLICES,
    LayoutBook,
    ProfileBuffer,
    ProfileRow,
)
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.ledger.stored_profiles import (
    DAY_S,
    HOUR_S,
    KeptProfiles,
    ProfileRange,
    insert_layouts,
    insert_profiles,
    last_profiled,
    newest_layout,
    newest_range,
    read_profile,
    roll_up,
)
from outrider.dataops.state.database import write

START = 1_790_000_040_000_000 // MINUTE_US * MINUTE_US


def batch(rows: int, *, seed: int = 0, version: str = "1", branch: str = "north") -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.from_columns(
        {
            "inputs.age": rng.integers(18, 90, rows),
            "inputs.branch": rng.choice([branch, "south"], rows),
            "version": [version] * rows,
        },
        model="m",
    )


def gathered(*blocks: tuple[int, Batch]) -> ProfileBuffer:
    """Blocks that were received at seconds behind the start."""
    buffer = ProfileBuffer()
    for seq, (at_s, one) in enumerate(blocks, 1):
        buffer.add(one, np.full(one.rows, seq), {seq: START + at_s * 1_000_000}, shops(one))
    return buffer


def shops(one: Batch) -> list[str | None] | None:
    """Slices by shop."""
    return text_of(one, "attrs.shop") if one.has("attrs.shop") else None


def drained(buffer: ProfileBuffer, book: LayoutBook, at_s: float) -> list[ProfileRow]:
    return buffer.drain("champion", book, now_us=START + int(at_s * 1e6))


def fitted() -> LayoutBook:
    return LayoutBook(ProfileLayout.fit(batch(FIRST_ROWS)))


def test_a_minute_is_written_once_when_it_is_over_and_the_open_one_stays() -> None:
    buffer, book = gathered((10, batch(50)), (50, batch(20)), (70, batch(5))), fitted()
    assert drained(buffer, book, 59) == []
    (row,) = drained(buffer, book, 70)
    assert (row.start_us, row.span_s, row.rows, row.seq) == (START, 60, 70, 2)
    assert buffer.rows == 5
    (row,) = drained(buffer, book, 120)
    assert (row.start_us, row.rows, row.seq) == (START + MINUTE_US, 5, 3)


def test_records_wait_for_a_layout_that_the_first_thousand_fix() -> None:
    book = LayoutBook()
    buffer = gathered((0, batch(900)))
    assert drained(buffer, book, 200) == []
    buffer.add(batch(100), np.full(100, 2), {2: START + 210_000_000})
    rows = drained(buffer, book, 400)
    assert [(row.start_us - START) // MINUTE_US for row in rows] == [0, 3]
    assert [row.source for row in book.new_rows()] == ["the first 1,000 records of traffic"]


def test_a_reference_comes_before_traffic_and_columns_that_it_lacks_are_added() -> None:
    reference = batch(2000)
    book = LayoutBook(reference=lambda: ("dataset m@3", reference))
    wider = batch(300).with_columns({"outputs.score": np.random.default_rng(0).random(300)})
    (row,) = drained(gathered((0, wider)), book, 60)
    assert [one.source for one in book.new_rows()] == ["dataset m@3", "the first 300 records of traffic"]
    assert book.current is not None
    assert row.layout == book.current.digest
    assert set(book.current.sources) == {"inputs.age", "inputs.branch", "outputs.score"}


def test_versions_and_slices_have_profiles_of_their_own_and_rare_slices_share_one() -> None:
    one = batch(60, version="1").with_columns({"attrs.shop": ["a"] * 30 + ["b"] * 25 + ["c"] * 5})
    two = batch(20, version="2").with_columns({"attrs.shop": ["a"] * 20})
    rows = drained(gathered((0, one), (1, two)), fitted(), 60)
    assert {(row.version, row.slice): row.rows for row in rows} == {
        ("1", "a"): 30, ("1", "b"): 25, ("1", OTHERS): 5, ("2", "a"): 20,
    }  # fmt: skip


def test_profiles_do_not_depend_on_how_blocks_are_cut() -> None:
    whole, book = batch(500), fitted()
    assert book.current is not None
    buffer = ProfileBuffer()
    for seq, start in enumerate(range(0, 500, 37), 1):
        part = whole.slice(start, min(37, 500 - start))
        buffer.add(part, np.full(part.rows, seq), {seq: START + start * 1000})
    (row,) = drained(buffer, book, 60)
    found, expected = Profile.from_bytes(row.payload, book.current), Profile.of(whole, book.current)
    assert (found.counts == expected.counts).all()
    assert (found.estimates[0].points.weights == expected.estimates[0].points.weights).all()


def store(engine: Engine, minutes: int, *, step_s: int = 60) -> list[Profile]:
    layout = ProfileLayout.fit(batch(FIRST_ROWS))
    book, profiles = LayoutBook(layout), []
    book._note(layout, "test", FIRST_ROWS, START)
    with write(engine) as connection:
        insert_layouts(connection, "m", book.new_rows())
        for at in range(minutes):
            profile = Profile.of(batch(30, seed=at), layout)
            profiles.append(profile)
            start = START + at * step_s * 1_000_000
            insert_profiles(
                connection, "m",
                [ProfileRow(60, start, "champion", "1", "", at + 1, layout.digest, 30, profile.to_bytes())],
            )  # fmt: skip
    return profiles


def test_roll_up_joins_minutes_to_hours_and_days_and_loses_no_count(engine: Engine) -> None:
    profiles = store(engine, 300, step_s=600)  # fifty hours
    whole = merged(profiles)
    end = START + 300 * 600 * 1_000_000
    kept = KeptProfiles(minutes_s=3 * HOUR_S, hours_s=DAY_S)
    with write(engine) as connection:
        assert roll_up(connection, "m", now_us=end, kept=kept) > 0
        assert roll_up(connection, "m", now_us=end, kept=kept) == 0
        counts = connection.exec_driver_sql("SELECT span_s, count(*) FROM profile GROUP BY span_s")
        spans = {span: number for span, number in counts.all()}  # noqa: C416 - rows are not pairs
        found = read_profile(connection, "m", ProfileRange())
        assert last_profiled(connection, "m", "champion") == 300
    assert set(spans) == {60, HOUR_S, DAY_S}
    assert spans[60] <= 24
    assert found is not None
    assert found.profile.rows == 9000
    assert (found.profile.counts == whole.counts).all()
    assert found.source == "test"
    with write(engine) as connection:
        roll_up(connection, "m", now_us=end + 800 * DAY_S * 1_000_000, kept=KeptProfiles())
        assert read_profile(connection, "m", ProfileRange()) is None


def test_a_range_holds_its_windows_alone(engine: Engine) -> None:
    store(engine, 10)
    with engine.connect() as connection:
        found = read_profile(
            connection, "m", ProfileRange(since_us=START + 3 * MINUTE_US, until_us=START + 5 * MINUTE_US)
        )
        assert found is not None
        assert (found.profile.rows, found.since_us, found.until_us) == (
            60, START + 3 * MINUTE_US, START + 5 * MINUTE_US,
        )  # fmt: skip
        assert read_profile(connection, "m", ProfileRange(version="2")) is None
        assert newest_layout(connection, "m") == ProfileLayout.fit(batch(FIRST_ROWS))
        assert newest_layout(connection, "other") is None


def test_windows_of_two_layouts_are_joined_under_one_that_is_stored(engine: Engine) -> None:
    store(engine, 1)
    other = ProfileLayout.fit(batch(500, seed=9)).extended(
        batch(500).with_columns({"attrs.wait": pa.array(np.arange(500.0))})
    )
    profile = Profile.of(batch(40), other)
    book = LayoutBook()
    book._note(other, "later", 500, START + 1)
    with write(engine) as connection:
        insert_layouts(connection, "m", book.new_rows())
        row = ProfileRow(60, START + MINUTE_US, "champion", "1", "", 2, other.digest, 40, profile.to_bytes())
        insert_profiles(connection, "m", [row])
        roll_up(connection, "m", now_us=START + 2 * DAY_S * 1_000_000, kept=KeptProfiles())
        found = read_profile(connection, "m", ProfileRange())
    assert found is not None
    assert found.profile.rows == 70
    counts, _ = found.profile.counts_of("inputs.age")
    assert counts.sum() == 70
    assert counts[-1] == 30  # of bins that are not the newer's


def test_a_year_of_twenty_columns_is_small(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, object] = {f"inputs.x{n}": rng.normal(size=60_000) for n in range(15)}
    columns |= {f"inputs.c{n}": rng.choice([f"v{k}" for k in range(20)], 60_000) for n in range(5)}
    traffic = Batch.from_columns(columns, model="m")
    layout = ProfileLayout.fit(traffic.slice(0, 10_000))
    size = len(Profile.of(traffic, layout).to_bytes())
    assert size / 60_000 <= 64
    assert size * (180 + 14 * 24 + 730) <= 300e6
    few = len(Profile.of(traffic.slice(0, 60), layout).to_bytes())
    assert few / 60 == pytest.approx(45, abs=15)


def sliced(rows: int, part: object, *, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    return Batch.from_columns(
        {"inputs.age": rng.integers(18, 90, rows), "attrs.shop": [part] * rows, "version": ["1"] * rows},
        model="m",
    )


def test_a_slice_that_is_called_as_the_others_are_loses_no_record() -> None:
    blocks = (10, sliced(30, OTHERS)), (20, sliced(3, "rare", seed=1))
    rows = drained(gathered(*blocks), fitted(), 60)
    assert [(row.slice, row.rows) for row in rows] == [(OTHERS, 33)]


def test_columns_that_differ_within_a_block_are_one_profile() -> None:
    buffer = ProfileBuffer()
    for one in (sliced(20, "a"), batch(30)):
        buffer.add(one, np.full(one.rows, 7), {7: START})
    (row,) = drained(buffer, fitted(), 60)
    assert (row.rows, row.seq) == (50, 7)


def test_slices_of_few_records_a_minute_have_profiles_of_their_own_in_the_end() -> None:
    buffer, book, found = ProfileBuffer(), fitted(), []
    for minute in range(6):
        for seq, part in enumerate(("a", "b"), 2 * minute + 1):
            rows = sliced(4, part, seed=seq)
            buffer.add(rows, np.full(4, seq), {seq: START + minute * MINUTE_US}, shops(rows))
        found.append({row.slice for row in drained(buffer, book, 60 * (minute + 1))})
    assert found == [{OTHERS}] * 2 + [{"a", "b"}] * 4


def test_an_entity_counts_once_for_its_slice() -> None:
    buffer, book = ProfileBuffer(), fitted()
    for minute in range(12):
        rows = sliced(4, "a", seed=minute).with_columns({"entity": pa.array(["e"] * 4)})
        buffer.add(rows, np.full(4, minute + 1), {minute + 1: START + minute * MINUTE_US}, shops(rows))
        (row,) = drained(buffer, book, 60 * (minute + 1))
        assert row.slice == OTHERS


@pytest.mark.parametrize("part", [True, 1.0, 7])
def test_slices_are_named_as_in_the_counts(part: object) -> None:
    rows = sliced(20, part)
    (row,) = drained(gathered((10, rows)), fitted(), 60)
    assert row.slice == text_of(rows, "attrs.shop")[0]


def test_erasure_leaves_a_layout_that_can_be_read_and_written_under(engine: Engine) -> None:
    profiles = store(engine, 2)
    layout = profiles[0].layout
    found, quoted = Found(), Quotations([], ["north", str(layout.columns[0].centre), "numeric", "3"])
    with write(engine) as connection:
        name_gone(connection, ErasureTarget(records=("r0",)), found)
        erase_rows_of(connection, found, quoted)
        clean = newest_layout(connection, "m")
        assert clean is not None
        assert clean.columns[0] == layout.columns[0]
        assert set(clean.columns[1].categories) == {"[erased]", "south"}
        payload = Profile.of(batch(30), clean).to_bytes()
        row = ProfileRow(60, START + 2 * MINUTE_US, "champion", "1", "", 3, clean.digest, 30, payload)
        insert_profiles(connection, "m", [row])
        whole = read_profile(connection, "m", ProfileRange())
        assert whole is not None
        assert whole.profile.rows == 90
        kept = KeptProfiles(minutes_s=0)
        assert roll_up(connection, "m", now_us=START + 2 * HOUR_S * 1_000_000, kept=kept) == 3


def test_minutes_of_a_clock_that_was_set_back_hold_up_nothing_and_hide_nothing(engine: Engine) -> None:
    buffer, book, day_s = gathered((86_400, batch(30))), fitted(), 86_400
    assert book.current is not None
    book._note(book.current, "test", FIRST_ROWS, START)
    written = drained(buffer, book, 10)
    for seq, at_s in enumerate((10, 70), 2):
        buffer.add(batch(20), np.full(20, seq), {seq: START + at_s * 1_000_000})
        written += drained(buffer, book, at_s)
    assert [(row.start_us - START) // 1_000_000 for row in written] == [day_s, 0]
    with write(engine) as connection:
        insert_layouts(connection, "m", book.new_rows())
        insert_profiles(connection, "m", written)
        wanted = newest_range(connection, "m", slots=("champion",), span_us=HOUR_S * 1_000_000)
        found = read_profile(connection, "m", wanted)
    assert found is not None
    assert (found.since_us, found.profile.rows) == (START, 20)


def test_a_reference_is_looked_for_once_a_minute() -> None:
    asked: list[int] = []
    buffer = gathered((10, batch(50)))
    book = LayoutBook(reference=lambda: asked.append(1))
    for at_s in (60, 61, 62, 119, 120):
        assert drained(buffer, book, at_s) == []
    assert len(asked) == 2


def test_weights_beyond_what_is_stored_stay_positive() -> None:
    one = batch(50).with_columns({"weight": np.full(50, 1e12)})
    (row,) = drained(gathered((10, one)), book := fitted(), 60)
    assert book.current is not None
    assert (Profile.from_bytes(row.payload, book.current).weights >= 0).all()


def test_bins_of_images_wait_for_as_many_records_as_all_others() -> None:
    rng, buffer, book = np.random.default_rng(0), ProfileBuffer(), LayoutBook()
    for seq in range(1, 21):
        columns = {
            "inputs.image": tensor_array(rng.random((50, 128, 128), dtype=np.float32)),
            "outputs.label": rng.integers(0, 3, 50),
        }
        buffer.add(Batch.from_columns(columns, model="m"), np.full(50, seq), {seq: START})
        assert drained(buffer, book, 1) == []
    (row,) = drained(buffer, book, 60)
    assert (row.rows, book.current is not None) == (1000, True)
    assert book.current is not None
    assert {one.name: one.bins > 2 for one in book.current.columns} == dict.fromkeys(
        ("inputs.image#brightness", "inputs.image#sharpness", "outputs.label"), True
    )


def test_minutes_years_apart_are_few_rows() -> None:
    rows = batch(500).with_columns({"version": pa.array([f"{at % 2}" for at in range(500)])})
    found = drained(gathered((-1_000_000_000, rows), (10, rows)), fitted(), 60)
    assert [row.rows for row in found] == [250] * 4


def test_slices_that_have_profiles_are_those_met_last() -> None:
    buffer, book = ProfileBuffer(), fitted()
    for minute in range(SLICES + 20):
        for part in ("always", f"shop {minute}"):
            rows = sliced(12, part)
            buffer.add(rows, np.full(12, minute), {minute: START + minute * MINUTE_US}, shops(rows))
        found = {row.slice for row in drained(buffer, book, 60 * (minute + 1))}
        assert found == {"always", f"shop {minute}"}
    assert len(buffer.slices) == SLICES
