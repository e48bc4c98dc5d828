"""Exactly once: repeated steps, stale epochs, gaps, faults in the middle."""

from dataclasses import dataclass, field, replace

import pytest

from gpuworker.core.batch import Batch
from gpuworker.core.state import Limits
from gpuworker.core.steps import (
    SAMPLED_TOKEN,
    BlockChanges,
    Drawn,
    NewSequence,
    SamplingParams,
    Scores,
    Step,
    StepFailure,
    StepResult,
)
from gpuworker.engine import Engine, Identity
from gpuworker.errors import LogitsNotFinite

LIMITS = Limits(block_size=4, num_device_blocks=8, num_host_blocks=8, max_model_len=32, vocab_size=50)
IDENTITY = Identity("worker", "model", b"fingerprint", "float32", "none", 1024, LIMITS)


@dataclass
class CountingExecutor:
    """Draws the number of its calls as the next token, or raises ``fault``."""

    calls: list[object] = field(default_factory=list)
    token_ids: list[tuple[int, ...]] = field(default_factory=list)
    fault: Exception | None = None

    def move(self, changes: BlockChanges) -> None:
        self.calls.append(changes)

    def compute(self, batch: Batch) -> Drawn:
        if self.fault is not None:
            raise self.fault
        self.token_ids.append(tuple(batch.token_ids))
        num_samples = len(batch.samples)
        return Drawn([len(self.calls)] * num_samples, Scores([-0.5] * num_samples))


@pytest.fixture
def executor() -> CountingExecutor:
    return CountingExecutor()


@pytest.fixture
def engine(executor) -> Engine:
    return Engine(IDENTITY, executor)


def first_step(engine: Engine, step_id: int = 1) -> Step:
    return Step(
        step_id=step_id,
        epoch=engine.epoch,
        changes=BlockChanges(appended_sequence_ids=(1, 2), appended_num_blocks=(1, 1), appended_block_ids=(3, 4)),
        new_sequences=(NewSequence(1, SamplingParams()), NewSequence(2, SamplingParams())),
        sequence_ids=(1, 2),
        num_tokens=(2, 1),
        positions=(0, 0),
        samples=(True, True),
        token_ids=(7, 8, 9),
    )


def next_step(engine: Engine, step_id: int) -> Step:
    return Step(
        step_id=step_id,
        epoch=engine.epoch,
        sequence_ids=(1,),
        num_tokens=(1,),
        positions=(2,),
        samples=(True,),
        token_ids=(9,),
    )


def test_a_step_is_moved_then_computed_and_answered_in_its_order(engine, executor):
    step = first_step(engine)
    answer = engine.execute(step)
    assert isinstance(answer, StepResult)
    assert (answer.sequence_ids, answer.token_ids, answer.logprobs) == ((1, 2), (1, 1), (-0.5, -0.5))
    assert executor.calls == [step.changes]
    assert engine.last_step_id == 1


def test_a_repeated_step_gets_the_stored_answer_and_is_not_carried_out_again(engine, executor):
    answer = engine.execute(first_step(engine))
    assert engine.execute(first_step(engine)) is answer
    assert len(executor.calls) == 1
    assert engine.num_sequences == 2


def test_the_last_two_answers_are_kept_for_a_client_that_got_neither(engine, executor):
    answers = [engine.execute(first_step(engine)), engine.execute(next_step(engine, 2))]
    engine.attach(forget_sequences=False)
    assert [engine.execute(first_step(engine)), engine.execute(next_step(engine, 2))] == answers
    assert len(executor.calls) == 2
    engine.execute(replace(next_step(engine, 3), positions=(3,)))
    assert isinstance(engine.execute(first_step(engine)), StepFailure)


def test_a_queued_step_goes_on_from_the_token_of_the_one_before_also_after_that_was_asked_for_again(engine, executor):
    engine.execute(first_step(engine))
    engine.execute(first_step(engine))
    queued = replace(next_step(engine, 2), token_ids=(SAMPLED_TOKEN,))
    assert isinstance(engine.execute(queued), StepResult)
    assert executor.token_ids == [(7, 8, 9), (1,)]


def test_what_is_queued_behind_a_refused_step_is_refused_and_both_can_be_sent_again(engine, executor):
    queued = replace(next_step(engine, 2), token_ids=(SAMPLED_TOKEN,))
    assert isinstance(engine.execute(replace(first_step(engine), token_ids=(7, 8, 50))), StepFailure)
    assert isinstance(engine.execute(queued), StepFailure)
    assert executor.calls == []
    assert isinstance(engine.execute(first_step(engine)), StepResult)
    assert isinstance(engine.execute(queued), StepResult)


def test_what_is_queued_behind_failed_sequences_and_needs_their_tokens_is_refused(engine, executor):
    executor.fault = LogitsNotFinite([1])
    engine.execute(first_step(engine))
    executor.fault = None
    answer = engine.execute(replace(next_step(engine, 2), token_ids=(SAMPLED_TOKEN,)))
    assert isinstance(answer, StepFailure)
    assert "the last step sampled none" in answer.message


def test_what_is_queued_behind_a_step_that_lost_the_memory_is_stale(engine, executor):
    queued = replace(next_step(engine, 2), token_ids=(SAMPLED_TOKEN,))
    executor.fault = MemoryError("no room")
    engine.execute(first_step(engine))
    executor.fault = None
    answer = engine.execute(queued)
    assert isinstance(answer, StepFailure)
    assert answer.epoch_is_stale


def test_a_step_tells_how_long_nothing_was_computed_before_it(engine, monkeypatch):
    now_s = iter([1.0, 1.5, 1.75, 2.0])
    monkeypatch.setattr("gpuworker.engine.time.perf_counter", lambda: next(now_s))
    first, second = engine.execute(first_step(engine)), engine.execute(next_step(engine, 2))
    assert isinstance(first, StepResult)
    assert isinstance(second, StepResult)
    assert (first.idle_s, first.compute_s) == (0.0, 0.5)
    assert (second.idle_s, second.compute_s) == (0.25, 0.25)


def test_a_step_of_another_epoch_is_stale_even_if_its_id_is_the_last_one(engine, executor):
    engine.execute(first_step(engine))
    answer = engine.execute(replace(first_step(engine), epoch=engine.epoch + 1))
    assert isinstance(answer, StepFailure)
    assert answer.epoch_is_stale
    assert len(executor.calls) == 1


@pytest.mark.parametrize("step_id", [3, 4])
def test_a_step_is_refused_if_one_before_it_is_missing(engine, step_id):
    engine.execute(first_step(engine))
    answer = engine.execute(next_step(engine, step_id))
    assert isinstance(answer, StepFailure)
    assert answer.message == f"step_id is {step_id}, but the next one is 2"
    assert not answer.epoch_is_stale


def test_an_older_step_is_refused(engine):
    engine.execute(first_step(engine, step_id=5))
    answer = engine.execute(next_step(engine, 4))
    assert isinstance(answer, StepFailure)
    assert "step_id is 4, but the next one is 6" in answer.message


def test_a_refused_step_changes_nothing_and_its_id_can_be_used_again(engine, executor):
    refused = engine.execute(replace(first_step(engine), token_ids=(7, 8, 50)))
    assert isinstance(refused, StepFailure)
    assert executor.calls == []
    assert (engine.num_sequences, engine.last_step_id) == (0, 0)
    assert isinstance(engine.execute(first_step(engine)), StepResult)


@pytest.mark.parametrize("step_id", [3, 5, 40])
def test_a_new_client_may_begin_with_any_step_and_finds_no_sequences(engine, executor, step_id):
    engine.execute(first_step(engine, step_id=5))
    engine.attach(forget_sequences=True)
    assert (engine.num_sequences, engine.last_step_id) == (0, 0)
    assert isinstance(engine.execute(first_step(engine, step_id)), StepResult)
    assert len(executor.calls) == 2
    refused = engine.execute(next_step(engine, step_id + 2))
    assert isinstance(refused, StepFailure)
    assert refused.message == f"step_id is {step_id + 2}, but the next one is {step_id + 1}"


def test_a_sequence_is_answered_once_for_each_choice_drawn_for_it(engine, executor):
    answer = engine.execute(replace(first_step(engine), num_choices=(3, 1)))
    assert isinstance(answer, StepResult)
    assert answer.sequence_ids == (1, 1, 1, 2)
    assert len(answer.token_ids) == len(answer.logprobs) == 4


def test_a_sequence_whose_choices_all_fail_is_named_once(engine, executor):
    executor.fault = LogitsNotFinite([0, 1, 2])
    answer = engine.execute(replace(first_step(engine), num_choices=(3, 1)))
    assert isinstance(answer, StepFailure)
    assert answer.failed_sequence_ids == (1,)


def test_the_same_client_finds_its_sequences_again(engine):
    engine.execute(first_step(engine))
    engine.attach(forget_sequences=False)
    assert isinstance(engine.execute(next_step(engine, 2)), StepResult)


def test_logits_that_are_not_finite_fail_their_sequence_and_the_worker_serves_on(engine, executor):
    executor.fault = LogitsNotFinite([1])
    epoch = engine.epoch
    answer = engine.execute(first_step(engine))
    assert isinstance(answer, StepFailure)
    assert answer.failed_sequence_ids == (2,)
    assert "step 1: the logits of sequences [2] are not finite" in answer.message
    executor.fault = None
    assert engine.execute(first_step(engine)) is answer  # it was carried out
    assert isinstance(engine.execute(next_step(engine, 2)), StepResult)
    assert engine.epoch == epoch


def test_a_fault_in_the_middle_of_a_step_begins_a_new_epoch(engine, executor):
    executor.fault = MemoryError("no room for scores")
    epoch = engine.epoch
    answer = engine.execute(first_step(engine))
    assert isinstance(answer, StepFailure)
    assert answer.epoch_is_stale
    assert "step 1 failed: MemoryError: no room for scores" in answer.message
    assert engine.epoch != epoch
    assert (engine.num_sequences, engine.last_step_id) == (0, 0)
    executor.fault = None
    assert isinstance(engine.execute(first_step(engine)), StepResult)


def test_epochs_fit_into_63_bits_and_are_never_zero():
    epochs = {Engine(IDENTITY, CountingExecutor()).epoch for _ in range(20)}
    assert len(epochs) == 20
    assert all(0 < epoch < 2**63 for epoch in epochs)


def test_the_view_of_the_tables_is_a_copy_that_later_steps_do_not_change(engine):
    engine.execute(first_step(engine))
    view = engine.view()
    assert (view.epoch, view.last_step_id) == (engine.epoch, 1)
    assert {sequence_id: list(table) for sequence_id, table in view.tables.items()} == {1: [3], 2: [4]}
    engine.attach(forget_sequences=True)
    assert len(view.tables) == 2
    assert not engine.view().tables
