"""A stream to a service in the same process does what the scheduler expects of one over a socket."""

import asyncio

import pytest

from octavo.in_process.local_stream import LocalStream
from scheduler.errors import MemoryUnavailable, StepRefused


class Service:
    """Doubles numbers; 0 breaks a promise, a negative number breaks the service, and 99 freezes it."""

    num_callers = 0

    def greet(self):
        self.num_callers += 1
        return self.answer

    async def answer(self, number):
        if number == 99:
            await asyncio.Event().wait()
        if number == 0:
            raise ValueError("number is 0")
        if number < 0:
            raise OSError("the journal is gone")
        return 2 * number


def error_of(error):
    return StepRefused(str(error)) if isinstance(error, ValueError) else MemoryUnavailable(str(error))


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def stream(service):
    return LocalStream(service.greet, error_of, MemoryUnavailable)


async def test_each_question_gets_its_answer_however_many_are_asked_at_once(stream):
    assert not stream.is_open
    assert await stream.open(1, 1.0) == 2
    assert await asyncio.gather(*(stream.ask(number, 1.0) for number in (2, 3, 4))) == [4, 6, 8]
    assert stream.is_open


async def test_nothing_is_asked_before_it_was_opened_or_after_it_was_closed(stream):
    with pytest.raises(MemoryUnavailable, match="not open"):
        await stream.ask(1, 1.0)
    await stream.open(1, 1.0)
    await stream.close()
    with pytest.raises(MemoryUnavailable, match="not open"):
        await stream.ask(1, 1.0)


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [(0, StepRefused, "number is 0"), (-1, MemoryUnavailable, "journal is gone"), (99, MemoryUnavailable, "0.01 s")],
)
async def test_a_service_that_does_not_answer_closes_the_stream_until_it_is_opened_again(
    stream, service, number, error, message
):
    await stream.open(1, 1.0)
    with pytest.raises(error, match=message):
        await stream.ask(number, 0.01)
    assert not stream.is_open
    assert await stream.open(5, 1.0) == 10
    assert service.num_callers == 2


async def test_a_refused_greeting_may_be_accepted_later(stream):
    with pytest.raises(MemoryUnavailable, match="number is 0"):
        await stream.open(0, 1.0)
    assert not stream.is_open
