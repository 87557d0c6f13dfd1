import numpy as np
import pytest

from outrider.demo import cards


@pytest.fixture(scope="module")
def deck() -> cards.Deck:
    return cards.read_deck(seed=3)


def test_every_card_serves_one_purpose(deck: cards.Deck) -> None:
    parts = [deck.train, deck.held_out, deck.traffic, deck.final]
    assert [len(part) for part in parts] == [700, 250, 420, 427]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1797))
    assert deck.images.shape == (1797, 8, 8)
    assert (deck.images.min(), deck.images.max()) == (0.0, 1.0)


def test_traffic_repeats_with_the_seed_and_changes_with_it(deck: cards.Deck) -> None:
    first, again = (list(cards.tracks(cards.read_deck(3), "faulty", 3))[:50] for _ in range(2))
    assert all(np.array_equal(a.frames, b.frames) for a, b in zip(first, again, strict=True))
    assert [track.id for track in first] == [track.id for track in again]
    other = list(cards.tracks(cards.read_deck(4), "faulty", 4))[:50]
    assert [track.card for track in first] != [track.card for track in other]


def test_cameras_are_sound_before_they_fail(deck: cards.Deck) -> None:
    healthy = list(cards.tracks(deck, "healthy", 3))
    assert {track.fault for track in healthy} == {"healthy"}
    assert {track.device for track in healthy} == set(cards.CAMERAS)


def test_nearly_half_of_the_faulty_phase_comes_from_failing_cameras(deck: cards.Deck) -> None:
    tracks = list(cards.tracks(deck, "faulty", 3))
    assert len(tracks) == 800
    assert {sum(t.fault == fault for t in tracks) for fault in cards.FAULTS} == {90}  # 45 % together
    traffic = {cards.card_name(card) for card in deck.traffic.tolist()}
    assert {track.card for track in tracks} == traffic


def test_the_final_phase_shows_every_fresh_card_in_health_and_each_fault_equally(deck: cards.Deck) -> None:
    tracks = list(cards.tracks(deck, "final", 3))
    fresh = {cards.card_name(card) for card in deck.final.tolist()}
    assert {track.card for track in tracks} == fresh
    assert sorted(t.card for t in tracks if t.fault == "healthy") == sorted(fresh)
    for fault in cards.FAULTS:
        assert sum(track.fault == fault for track in tracks) == cards.FINAL_PER_FAULT
    share = 4 * cards.FINAL_PER_FAULT / len(tracks)
    assert share == pytest.approx(cards.FAULTY_SHARE, abs=0.005)


def test_watched_cards_are_final_ones_and_each_an_entity_of_its_own(deck: cards.Deck) -> None:
    tracks = list(cards.tracks(deck, "watched", 3))
    assert len({track.card for track in tracks}) == len(tracks) == 60
    assert {track.card for track in tracks} < {cards.card_name(card) for card in deck.final.tolist()}
    assert {sum(t.fault == fault for t in tracks) for fault in cards.FAULTS} == {7}


def test_ids_are_distinct_over_all_phases(deck: cards.Deck) -> None:
    ids = [
        track.record_id(frame)
        for phase in ("healthy", "faulty", "final", "watched")
        for track in cards.tracks(deck, phase, 3)
        for frame in range(len(track.frames))
    ]
    assert len(set(ids)) == len(ids) == 5 * (100 + 800 + 427 + 348 + 60)


def test_each_fault_looks_as_it_should(deck: cards.Deck) -> None:
    image = deck.images[0]

    def mean_frame(fault: cards.Fault) -> cards.Floats:
        frames = cards.render(image, fault, np.random.default_rng(1), frames=400)
        return np.asarray(frames.mean(axis=0), dtype=np.float32)

    healthy = mean_frame("healthy")
    assert np.abs(mean_frame("mirrored") - healthy[:, ::-1]).max() < 0.02
    assert np.abs(mean_frame("inverted") - (1 - healthy)).max() < 0.02
    assert (mean_frame("stuck")[:, 5] == 1.5).all()
    assert np.abs(mean_frame("occluded")[2:5, 2:6] - 1.0).max() < 0.02
    assert np.abs(mean_frame("occluded")[5:] - healthy[5:]).max() < 0.02


def test_three_frames_in_ten_are_off_by_a_column() -> None:
    image = np.zeros((8, 8), dtype=np.float32)
    image[:, 3] = 1.0
    frames = cards.render(image, "healthy", np.random.default_rng(0), frames=4000)
    column = frames.mean(axis=1).argmax(axis=1)
    assert set(column.tolist()) == {2, 3, 4}
    assert (column != 3).mean() == pytest.approx(cards.SHIFT, abs=0.03)


def test_pixels_survive_json(deck: cards.Deck) -> None:
    frame = next(cards.tracks(deck, "faulty", 3)).frames[0]
    sent = frame.astype(float).round(cards.DECIMALS).tolist()
    assert np.array_equal(np.array(sent, dtype=np.float32), frame)
    assert max(len(str(pixel)) for row in sent for pixel in row) <= 6
