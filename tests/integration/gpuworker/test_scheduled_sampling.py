"""Rules and log-probabilities through the real scheduler, messages and worker, against `transformers` in float32.

What is asked of a token must not depend on chunks, prefix hits, forks, swaps or recomputation, nor on whether the
worker gets it from the scheduler or puts it there itself.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from doubles.rig import Rig, make_request
from doubles.tiny_llama import VOCAB_SIZE, naive_logits, random_llama, write_gguf
from gpuworker.assembly import assemble
from gpuworker.engine import Engine
from gpuworker.settings import Dtype, Kernels, Settings
from gpuworker.wire import answer_to_wire, step_from_wire
from kvmanager.adapters.protobuf import grant_message
from kvmanager.core.plan import Grant as MemoryGrant
from scheduler.adapters.grpc_worker import result_from_wire, step_to_wire
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import Request, SamplingParams, TokenRules
from scheduler.core.scheduler import Scheduler
from scheduler.core.sequence import Sequence
from scheduler.core.steps import Step, StepResult

BLOCK_SIZE = 4
MAX_ERROR = 1e-4
PROMPTS = [[(37 * index + 11 * length) % VOCAB_SIZE for index in range(length)] for length in (5, 23, 1, 40)]
RULES = TokenRules(
    logit_bias=((3, 2.5), (7, -4.0)),
    bad_words=((1, 2), (5,), (8, 9, 10)),
    repetition_penalty=1.3,
    presence_penalty=0.5,
    frequency_penalty=0.7,
)


class WireWorker:
    """The worker's engine behind the messages that scheduler and kvmanager exchange with it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.num_scored = 0

    def execute(self, step: Step) -> StepResult:
        changes = grant_message(MemoryGrant(step.step_id, changes=step.changes)).changes
        message = step_to_wire(replace(step, epoch=self.engine.epoch, changes=changes))
        self.num_scored += len(message.scored_rows)
        answer = answer_to_wire(self.engine.execute(step_from_wire(message)))
        assert answer.HasField("result"), answer
        return result_from_wire(answer.result)


class Run(Rig):
    """Requests to their end; keeps tokens, log-probabilities and tops by request and choice."""

    def __init__(self, engine: Engine, num_blocks: int, *, overlaps: bool = True, **settings: object) -> None:
        super().__init__(num_blocks, BLOCK_SIZE, overlaps=overlaps, **settings)  # type: ignore[arg-type]
        self.model = WireWorker(engine)  # type: ignore[assignment]
        self.told: dict[tuple[str, int], list[tuple[int, float, tuple]]] = defaultdict(list)

    def commit(self) -> None:
        live: dict[int, tuple[Sequence, Request]] = {
            s.sequence_id: (s, group.request) for group in self.scheduler.groups for s in group.sequences
        }
        events = self.scheduler.commit(self.model.execute(self.scheduler.unanswered_steps[0]))
        tops = events.tops or [()] * len(events.token_ids)
        for sequence_id, *told in zip(events.sequence_ids, events.token_ids, events.logprobs, tops, strict=True):
            sequence, request = live[sequence_id]
            self.told[request.request_id, sequence.choice_index].append(tuple(told))
        self.scheduler.check()

    def finish(self, requests: list[Request]) -> Scheduler:
        self.groups = [self.scheduler.add(request) for request in requests]
        self.run()
        assert self.pool.is_idle
        return self.scheduler


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return random_llama()


@pytest.fixture
def engine(model, tmp_path) -> Engine:
    return engine_with(Kernels.REFERENCE, model, tmp_path)


def engine_with(kernels: Kernels, model: LlamaForCausalLM, folder: Path) -> Engine:
    path = write_gguf(model, folder / "tiny.gguf")
    return assemble(
        Settings(
            listen="unused",
            model=path,
            worker_id="w",
            block_size=BLOCK_SIZE,
            num_device_blocks=128,
            num_host_blocks=64,
            dtype=Dtype.FLOAT32,
            kernels=kernels,
            threads=1,
        )
    )


def log_softmax(model: LlamaForCausalLM, tokens: list[int]) -> torch.Tensor:
    return naive_logits(model, tokens).double().log_softmax(-1)


def check_logprobs(run: Run, model: LlamaForCausalLM, requests: list[Request]) -> None:
    """Of every prompt and output token, and of the tops beside it."""
    for request, group in zip(requests, run.groups, strict=True):
        prompt = list(request.prompt_token_ids)
        entries = group.sequences[0].scoring.entries
        told = run.told[request.request_id, 0]
        tokens = prompt + [token for token, _, _ in told]
        expected = log_softmax(model, tokens)
        assert [entry.token_id for entry in entries] == prompt
        assert (entries[0].logprob, entries[0].top) == (None, ())
        scored = [(entry.token_id, entry.logprob, entry.top) for entry in entries[1:]] + told
        for position, (token, logprob, top) in enumerate(scored):
            assert abs(logprob - expected[position, token].item()) < MAX_ERROR
            best = expected[position].topk(3).values.tolist()
            assert [value for _, value in top] == pytest.approx(best, abs=MAX_ERROR)
            assert [expected[position, i].item() for i, _ in top] == pytest.approx(best, abs=MAX_ERROR)


def asking(prompt: list[int], **fields: object) -> Request:
    sampling = SamplingParams(temperature=0.0, num_top_logprobs=3)
    return replace(make_request(prompt, 12), sampling=sampling, num_prompt_logprobs=3, **fields)


@pytest.mark.parametrize("budget", [4, 7, 64])
def test_logprobs_of_prompt_and_output_are_those_of_transformers_in_any_chunks(engine, model, budget):
    run = Run(engine, 128, budget=budget, max_seqs=4)
    requests = [asking(prompt) for prompt in PROMPTS]
    run.finish(requests)
    check_logprobs(run, model, requests)
    # The prompts are cached now, and still every token of them is scored; each once.
    again = [asking(prompt) for prompt in PROMPTS]
    run.finish(again)
    check_logprobs(run, model, again)
    assert run.model.num_scored == 2 * sum(len(prompt) - 1 for prompt in PROMPTS)


def test_after_recomputation_no_prompt_token_is_asked_twice_or_lost(engine, model):
    run = Run(engine, 14, budget=6, max_seqs=4, mode=PreemptionMode.RECOMPUTE)
    requests = [asking(prompt) for prompt in (*PROMPTS[:2], PROMPTS[1][::-1], PROMPTS[3])]
    scheduler = run.finish(requests)
    assert scheduler.num_preemptions > 0
    check_logprobs(run, model, requests)
    assert run.model.num_scored == sum(len(request.prompt_token_ids) - 1 for request in requests)


def test_a_prompt_alone_can_be_scored(engine, model):
    run = Run(engine, 128)
    request = asking(PROMPTS[1])
    request = replace(request, stop=replace(request.stop, max_tokens=0))
    run.finish([request])
    expected = log_softmax(model, PROMPTS[1])
    entries = run.groups[0].sequences[0].scoring.entries
    assert len(entries) == len(PROMPTS[1])
    assert len(run.groups[0].sequences[0].token_ids) == len(PROMPTS[1])
    assert entries[5].logprob == pytest.approx(expected[4, PROMPTS[1][5]].item(), abs=MAX_ERROR)


def naive_output(model: LlamaForCausalLM, prompt: list[int], num_tokens: int) -> list[int]:
    """Greedy under ``RULES``, one token at a time."""
    output: list[int] = []
    while len(output) < num_tokens:
        logits = naive_logits(model, prompt + output)[-1].double()
        for word in RULES.bad_words:
            if output[len(output) - len(word) + 1 :] == list(word[:-1]):
                logits[word[-1]] = -torch.inf
        for token, bias in RULES.logit_bias:
            logits[token] += bias
        for token in {*prompt, *output}:
            logits[token] *= 1 / RULES.repetition_penalty if logits[token] > 0 else RULES.repetition_penalty
            count = output.count(token)
            logits[token] -= RULES.frequency_penalty * count + RULES.presence_penalty * (count > 0)
        output.append(int(logits.argmax()))
    return output


@pytest.mark.parametrize("mode", [PreemptionMode.RECOMPUTE, PreemptionMode.SWAP])
def test_penalties_and_bad_words_survive_prefix_hits_forks_swaps_and_recomputation(engine, model, mode):
    run = Run(engine, 20, budget=8, max_seqs=6, num_host_blocks=40, mode=mode)
    sampling = SamplingParams(temperature=0.0, rules=RULES)
    prompts = [PROMPTS[1], PROMPTS[0], PROMPTS[1], PROMPTS[1] + [3]]
    requests = [
        replace(make_request(prompt, 16, num_choices), sampling=sampling)
        for prompt, num_choices in zip(prompts, (2, 1, 1, 2), strict=True)
    ]
    scheduler = run.finish(requests)
    assert scheduler.num_preemptions > 0
    for request in requests:
        expected = naive_output(model, list(request.prompt_token_ids), 16)
        for choice in range(request.num_choices):
            assert [token for token, _, _ in run.told[request.request_id, choice]] == expected


@pytest.mark.parametrize("mode", [PreemptionMode.RECOMPUTE, PreemptionMode.SWAP])
def test_overlap_changes_no_token_and_no_bit_of_a_logprob(model, tmp_path, mode):
    engine = engine_with(Kernels.CPU, model, tmp_path)
    sampling = SamplingParams(temperature=0.9, top_p=0.95, seed=11, num_top_logprobs=2, rules=RULES)
    stop_token_ids = frozenset(range(0, VOCAB_SIZE, 16))
    told = []
    for overlaps in (False, True):
        run = Run(engine, 17, overlaps=overlaps, budget=8, max_seqs=6, num_host_blocks=40, mode=mode)
        engine.attach(forget_sequences=True)
        requests = [
            replace(make_request(prompt, 16, num_choices, stop_token_ids=stop_token_ids), sampling=sampling)
            for prompt, num_choices in zip([*PROMPTS[:2], PROMPTS[1][::-1], PROMPTS[3]], (3, 2, 2, 1), strict=True)
        ]
        assert run.finish(requests).num_preemptions > 0
        told.append([run.told[r.request_id, choice] for r in requests for choice in range(r.num_choices)])
    assert told[0] == told[1]
    assert len({len(tokens) for tokens in told[0]}) > 2  # some end early, and a token of theirs is discarded


def test_a_sequence_that_may_draw_nothing_ends_without_a_token(engine):
    run = Run(engine, 128)
    rules = TokenRules(allowed_token_ids=(5,), bad_words=((5, 5),))
    request = replace(make_request(PROMPTS[0], 8), sampling=SamplingParams(rules=rules))
    run.finish([request])
    assert run.groups[0].sequences[0].token_ids == [*PROMPTS[0], 5]
