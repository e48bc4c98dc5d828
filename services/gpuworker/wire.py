"""Between the messages of ``gpuworker.v1`` and the worker's own values."""

from collections.abc import Iterable
from typing import cast

from gpuworker.core.steps import (
    BlockChanges,
    BlockId,
    NewSequence,
    SamplingParams,
    SequenceId,
    Step,
    StepFailure,
    StepResult,
    TokenRules,
)
from gpuworker.engine import Engine, EngineView, StepAnswer
from gpuworker.v1 import gpuworker_pb2 as pb
from kvmanager.v1 import kvmanager_pb2 as memory_pb


def step_from_wire(message: pb.Step) -> Step:
    """The step as a value; whether it makes sense is for the engine to say."""
    return Step(
        step_id=message.step_id,
        epoch=message.epoch,
        changes=_changes_from_wire(message.changes),
        new_sequences=tuple(_new_sequence_from_wire(new) for new in message.new_sequences),
        sequence_ids=_sequence_ids(message.sequence_ids),
        num_tokens=tuple(message.num_tokens),
        positions=tuple(message.positions),
        samples=tuple(message.samples),
        token_ids=tuple(message.token_ids),
        num_choices=tuple(message.num_choices),
        token_masks=tuple(message.token_masks),
        scored_rows=tuple(message.scored_rows),
        scored_token_ids=tuple(message.scored_token_ids),
        scored_num_top=tuple(message.scored_num_top),
    )


def answer_to_wire(answer: StepAnswer) -> pb.WorkerResponse:
    """A result or a failure as a message."""
    if isinstance(answer, StepFailure):
        return pb.WorkerResponse(
            failure=pb.StepFailure(
                step_id=answer.step_id,
                message=answer.message,
                epoch_is_stale=answer.epoch_is_stale,
                failed_sequence_ids=answer.failed_sequence_ids,
            )
        )
    return pb.WorkerResponse(result=_result_to_wire(answer))


def description_to_wire(engine: Engine) -> pb.WorkerResponse:
    """What the worker is, and how far it is in its epoch."""
    identity, limits = engine.identity, engine.identity.limits
    return pb.WorkerResponse(
        description=pb.WorkerDescription(
            worker_id=identity.worker_id,
            epoch=engine.epoch,
            last_step_id=engine.last_step_id,
            block_size=limits.block_size,
            num_device_blocks=limits.num_device_blocks,
            num_host_blocks=limits.num_host_blocks,
            block_bytes=identity.block_bytes,
            max_model_len=limits.max_model_len,
            vocab_size=limits.vocab_size,
            model_name=identity.model_name,
            model_fingerprint=identity.model_fingerprint,
            dtype=identity.dtype,
            kernel_backend=identity.kernel_backend,
            phase_names=identity.phase_names,
        )
    )


def view_to_wire(view: EngineView) -> pb.WorkerView:
    """The worker's tables as columns."""
    return pb.WorkerView(
        epoch=view.epoch,
        last_step_id=view.last_step_id,
        sequence_ids=view.tables.keys(),
        num_blocks=[len(table) for table in view.tables.values()],
        block_ids=[block_id for table in view.tables.values() for block_id in table],
    )


def _result_to_wire(result: StepResult) -> pb.StepResult:
    return pb.StepResult(
        step_id=result.step_id,
        sequence_ids=result.sequence_ids,
        token_ids=result.token_ids,
        logprobs=result.logprobs,
        compute_seconds=result.compute_s,
        idle_seconds=result.idle_s,
        num_top=result.num_top,
        top_token_ids=result.top_token_ids,
        top_logprobs=result.top_logprobs,
        scored_logprobs=result.scored_logprobs,
        scored_top_token_ids=result.scored_top_token_ids,
        scored_top_logprobs=result.scored_top_logprobs,
        phase_seconds=result.phase_s,
    )


def _changes_from_wire(message: memory_pb.BlockChanges) -> BlockChanges:
    return BlockChanges(
        forks=tuple((SequenceId(fork.parent_id), SequenceId(fork.child_id)) for fork in message.forks),
        dropped=_sequence_ids(message.dropped),
        replaced_sequence_ids=_sequence_ids(message.replaced_sequence_ids),
        replaced_indexes=tuple(message.replaced_indexes),
        replaced_block_ids=_block_ids(message.replaced_block_ids),
        appended_sequence_ids=_sequence_ids(message.appended_sequence_ids),
        appended_num_blocks=tuple(message.appended_num_blocks),
        appended_block_ids=_block_ids(message.appended_block_ids),
        swap_outs=_block_ids(message.swap_outs),
        swap_ins=_block_ids(message.swap_ins),
        copies=_block_ids(message.copies),
    )


def _new_sequence_from_wire(message: pb.NewSequence) -> NewSequence:
    sampling = message.sampling
    return NewSequence(
        SequenceId(message.sequence_id),
        SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=sampling.seed,
            choice_index=sampling.choice_index,
            min_p=sampling.min_p,
            num_top_logprobs=sampling.num_top_logprobs,
            rules=_rules_from_wire(sampling.rules) if sampling.HasField("rules") else None,
        ),
        message.num_prompt_tokens,
        tuple(message.token_ids),
    )


def _rules_from_wire(message: pb.TokenRules) -> TokenRules:
    return TokenRules(
        biased_token_ids=tuple(message.biased_token_ids),
        biases=tuple(message.biases),
        allowed_token_ids=tuple(message.allowed_token_ids),
        bad_words=tuple(tuple(word.token_ids) for word in message.bad_words),
        min_tokens=message.min_tokens,
        late_token_ids=tuple(message.late_token_ids),
        repetition_penalty=message.repetition_penalty or 1.0,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
    )


def _sequence_ids(column: Iterable[int]) -> tuple[SequenceId, ...]:
    return cast("tuple[SequenceId, ...]", tuple(column))


def _block_ids(column: Iterable[int]) -> tuple[BlockId, ...]:
    return cast("tuple[BlockId, ...]", tuple(column))
