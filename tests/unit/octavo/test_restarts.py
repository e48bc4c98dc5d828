from octavo.restarts import MAX_DELAY_S, MAX_RESTARTS, WINDOW_S, RestartBudget


def test_each_restart_waits_twice_as_long_as_the_one_before():
    budget = RestartBudget()
    delays = [budget.next_delay(now_s=float(n)) for n in range(3)]
    assert delays == [0.1, 0.2, 0.4]


def test_a_service_that_keeps_ending_is_given_up():
    budget = RestartBudget()
    assert all(budget.next_delay(0.0) is not None for _ in range(MAX_RESTARTS))
    assert budget.next_delay(1.0) is None
    assert budget.total == MAX_RESTARTS


def test_old_restarts_are_forgotten_but_still_counted():
    budget = RestartBudget()
    delays = [budget.next_delay(n * (WINDOW_S + 1)) for n in range(3 * MAX_RESTARTS)]
    assert set(delays) == {0.1}
    assert budget.total == 3 * MAX_RESTARTS


def test_no_delay_is_longer_than_the_limit():
    budget = RestartBudget()
    delays = [budget.next_delay(n * WINDOW_S / MAX_RESTARTS) for n in range(20)]
    assert max(delay for delay in delays if delay is not None) <= MAX_DELAY_S
