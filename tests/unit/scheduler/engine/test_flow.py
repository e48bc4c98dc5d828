"""When to come back to a full queue."""

from scheduler.engine.flow import MAX_WAIT_S, MIN_WAIT_S, WINDOW_S, Flow


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_follows_how_fast_the_queue_moved():
    clock = Clock()
    flow = Flow(clock)
    for _ in range(10):
        clock.now += 1
        flow.note(2)
    assert flow.seconds_for(8) == 4.0
    clock.now += 10
    assert flow.seconds_for(8) == 8.0


def test_what_came_back_to_the_queue_counts_against_it():
    clock = Clock()
    flow = Flow(clock)
    clock.now += 10
    flow.note(6)
    flow.note(-4)
    assert flow.seconds_for(2) == 10.0


def test_a_queue_that_never_moved_is_asked_again_soon_and_one_that_stopped_late():
    clock = Clock()
    flow = Flow(clock)
    assert flow.seconds_for(5) == MIN_WAIT_S
    flow.note(3)
    clock.now += WINDOW_S + 1
    assert flow.seconds_for(5) == MAX_WAIT_S


def test_the_wait_has_bounds():
    clock = Clock()
    flow = Flow(clock)
    clock.now += 5
    flow.note(1)
    assert flow.seconds_for(10_000) == MAX_WAIT_S
    flow.note(10_000)
    assert flow.seconds_for(1) == MIN_WAIT_S
