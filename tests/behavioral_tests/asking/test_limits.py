"""Limits on asking a server."""

from outrider.behavioral_tests.asking.limits import FAILURES, FIRST_REST_S, LONGEST_REST_S, Breaker


def test_the_breaker_rests_longer_and_longer_and_forgives_at_once() -> None:
    now = 0.0
    breaker = Breaker(clock=lambda: now)
    for _ in range(FAILURES):
        assert breaker.allows()
        breaker.failed()
    rests = []
    for _ in range(8):
        began = now
        while not breaker.allows():
            now += 1.0
        rests.append(now - began)
        breaker.failed()
    assert rests[:3] == [FIRST_REST_S, 2 * FIRST_REST_S, 4 * FIRST_REST_S]
    assert max(rests) == LONGEST_REST_S
    breaker.answered()
    assert breaker.allows()


def test_breaker_rests_no_longer_than_its_longest_after_days_of_failures() -> None:
    now = 0.0
    breaker = Breaker(clock=lambda: now, failures=1)
    for _ in range(2000):
        breaker.failed()
    now = LONGEST_REST_S
    assert breaker.allows()
