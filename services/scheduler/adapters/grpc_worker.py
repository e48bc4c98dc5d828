"""A gpuworker over gRPC."""

from typing import cast

from gpuworker.v1 import gpuworker_pb2 as pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerStub
from kvmanager.v1 import kvmanager_pb2
from scheduler.adapters.grpc_stream import RequestStream
from scheduler.adapters.message_stream import MessageStream
from scheduler.core.request import SequenceId, TokenRules
from scheduler.core.steps import NewSequence, Step, StepResult
from scheduler.errors import StepRefused, WorkerUnavailable
from scheduler.ports import WorkerDescription

_NO_RULES = TokenRules()
_LEAST_TOP_P = 2.0**-126  # a smaller one may be 0 in the float32 of the wire, where it has to be above 0


class MessageWorker:
    """``Worker`` by messages on a stream whose errors are ``WorkerUnavailable``."""

    def __init__(
        self,
        stream: MessageStream[pb.WorkerRequest, pb.WorkerResponse],
        *,
        attach_timeout_s: float = 5.0,
        step_timeout_s: float = 120.0,
    ) -> None:
        self._stream = stream
        self._attach_timeout_s = attach_timeout_s
        self._step_timeout_s = step_timeout_s

    @property
    def is_open(self) -> bool:
        """Whether the stream is up."""
        return self._stream.is_open

    async def attach(self, *, forget_sequences: bool) -> WorkerDescription:
        """Attaches to the worker and learns what it holds."""
        request = pb.WorkerRequest(attach=pb.Attach(forget_sequences=forget_sequences))
        response = await self._stream.open(request, self._attach_timeout_s)
        return description_from_wire(response.description)

    async def execute(self, step: Step) -> StepResult:
        """Has the worker compute ``step``."""
        response = await self._stream.ask(pb.WorkerRequest(step=step_to_wire(step)), self._step_timeout_s)
        if response.WhichOneof("kind") == "failure":
            raise _error_of(response.failure)
        return result_from_wire(response.result)

    async def close(self) -> None:
        """Ends the stream."""
        await self._stream.close()


class GrpcWorker(MessageWorker):
    """``Worker`` on a ``GPUWorker.Run`` stream."""

    def __init__(self, address: str, *, attach_timeout_s: float = 5.0, step_timeout_s: float = 120.0) -> None:
        stream: RequestStream[pb.WorkerRequest, pb.WorkerResponse] = RequestStream(
            address, lambda channel: GPUWorkerStub(channel).Run, WorkerUnavailable
        )
        super().__init__(stream, attach_timeout_s=attach_timeout_s, step_timeout_s=step_timeout_s)


def description_from_wire(description: pb.WorkerDescription) -> WorkerDescription:
    """What a worker says of itself, in the scheduler's words."""
    return WorkerDescription(
        worker_id=description.worker_id,
        epoch=description.epoch,
        last_step_id=description.last_step_id,
        block_size=description.block_size,
        num_device_blocks=description.num_device_blocks,
        num_host_blocks=description.num_host_blocks,
        block_bytes=description.block_bytes,
        max_model_len=description.max_model_len,
        vocab_size=description.vocab_size,
        model_name=description.model_name,
        model_fingerprint=description.model_fingerprint,
        dtype=description.dtype,
        kernel_backend=description.kernel_backend,
        phase_names=tuple(description.phase_names),
    )


def step_to_wire(step: Step) -> pb.Step:
    """A step as the worker reads it."""
    return pb.Step(
        step_id=step.step_id,
        epoch=step.epoch,
        changes=cast("kvmanager_pb2.BlockChanges", step.changes),
        new_sequences=[_new_sequence_to_wire(new) for new in step.new_sequences],
        sequence_ids=step.sequence_ids,
        num_tokens=step.num_tokens,
        positions=step.positions,
        samples=step.samples,
        token_ids=step.token_ids,
        num_choices=step.num_choices,
        token_masks=step.token_masks,
        scored_rows=step.scored_rows,
        scored_token_ids=step.scored_token_ids,
        scored_num_top=step.scored_num_top,
    )


def result_from_wire(result: pb.StepResult) -> StepResult:
    """A step's result in the scheduler's words."""
    return StepResult(
        step_id=result.step_id,
        sequence_ids=[SequenceId(sequence_id) for sequence_id in result.sequence_ids],
        token_ids=list(result.token_ids),
        logprobs=list(result.logprobs),
        compute_s=result.compute_seconds,
        idle_s=result.idle_seconds,
        num_top=list(result.num_top),
        top_token_ids=list(result.top_token_ids),
        top_logprobs=list(result.top_logprobs),
        scored_logprobs=list(result.scored_logprobs),
        scored_top_token_ids=list(result.scored_top_token_ids),
        scored_top_logprobs=list(result.scored_top_logprobs),
        phase_s=list(result.phase_seconds),
    )


def _error_of(failure: pb.StepFailure) -> WorkerUnavailable | StepRefused:
    message = f"the worker could not carry out step {failure.step_id}: {failure.message}"
    if failure.epoch_is_stale:  # it lost its memory: attaching again tells which epoch it has now
        return WorkerUnavailable(message)
    return StepRefused(message, tuple(failure.failed_sequence_ids))


def _new_sequence_to_wire(new: NewSequence) -> pb.NewSequence:
    sampling = new.sampling
    return pb.NewSequence(
        sequence_id=new.sequence_id,
        sampling=pb.SamplingParams(
            temperature=sampling.temperature,
            top_p=max(sampling.top_p, _LEAST_TOP_P),
            top_k=sampling.top_k,
            seed=sampling.seed,
            choice_index=new.choice_index,
            min_p=sampling.min_p,
            num_top_logprobs=sampling.num_top_logprobs,
            rules=_rules_to_wire(new),
        ),
        num_prompt_tokens=new.num_prompt_tokens,
        token_ids=new.token_ids,
    )


def _rules_to_wire(new: NewSequence) -> pb.TokenRules | None:
    rules = new.sampling.rules
    if rules == _NO_RULES and not new.min_tokens:
        return None
    return pb.TokenRules(
        biased_token_ids=[token_id for token_id, _ in rules.logit_bias],
        biases=[bias for _, bias in rules.logit_bias],
        allowed_token_ids=rules.allowed_token_ids,
        bad_words=[pb.TokenString(token_ids=word) for word in rules.bad_words],
        min_tokens=new.min_tokens,
        late_token_ids=new.late_token_ids,
        repetition_penalty=rules.repetition_penalty,
        presence_penalty=rules.presence_penalty,
        frequency_penalty=rules.frequency_penalty,
    )
