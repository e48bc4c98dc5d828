"""A worker process as its clients and its operator see it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from doubles.tiny_llama import naive_logits, random_llama, write_gguf
from gpuworker.v1 import gpuworker_pb2 as pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerStub
from kvmanager.v1.kvmanager_pb2 import BlockChanges

PROMPT = [5, 17, 80, 3, 44, 61]
START_TIMEOUT_S = 90


class Worker:
    """A process and its address."""

    def __init__(self, folder: Path, **flags: object) -> None:
        self.target = f"unix:{folder}/worker.sock"
        defaults = {
            "listen": self.target,
            "model": folder / "tiny.gguf",
            "block_size": 4,
            "num_device_blocks": 16,
            "num_host_blocks": 8,
            "kernels": "reference",
            "dtype": "float32",
            "threads": 1,
            "worker_id": "tiny",
        }
        arguments = [
            part
            for name, value in {**defaults, **flags}.items()
            for part in (f"--{name.replace('_', '-')}", str(value))
        ]
        services = Path(__file__).parents[3] / "services"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpuworker", *arguments],
            env={**os.environ, "PYTHONPATH": str(services)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        """The exit status after SIGTERM, and the log."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=30)
        return self.process.returncode, log


class Client:
    """A channel to a worker, which may still be starting."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        grpc.channel_ready_future(self._channel).result(START_TIMEOUT_S)

    def health(self, service: str = "") -> int:
        stub = health_pb2_grpc.HealthStub(self._channel)
        return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status

    def run(self, *requests: pb.WorkerRequest) -> list[pb.WorkerResponse]:
        """The answers to a stream of these messages."""
        return list(GPUWorkerStub(self._channel).Run(iter(requests), timeout=30))

    @contextmanager
    def held_stream(self) -> Iterator[Iterator[pb.WorkerResponse]]:
        """A stream that has sent its attach and stays open."""
        leave = threading.Event()

        def requests() -> Iterator[pb.WorkerRequest]:
            yield attach()
            leave.wait()

        yield GPUWorkerStub(self._channel).Run(requests(), timeout=60)
        leave.set()

    @contextmanager
    def late_stream(self, request: pb.WorkerRequest) -> Iterator[tuple[Iterator[pb.WorkerResponse], Callable]]:
        """A stream that has sent its attach, and sends ``request`` when it is told to."""
        late = threading.Event()

        def requests() -> Iterator[pb.WorkerRequest]:
            yield attach()
            late.wait()
            yield request

        yield GPUWorkerStub(self._channel).Run(requests(), timeout=60), late.set

    def inspect(self) -> pb.WorkerView:
        return GPUWorkerStub(self._channel).Inspect(pb.InspectRequest(), timeout=30)

    def close(self) -> None:
        self._channel.close()


def attach(*, forget: bool = False) -> pb.WorkerRequest:
    return pb.WorkerRequest(attach=pb.Attach(forget_sequences=forget))


def prefill(epoch: int, step_id: int = 1, block_ids: tuple[int, ...] = (9, 2)) -> pb.WorkerRequest:
    return pb.WorkerRequest(
        step=pb.Step(
            step_id=step_id,
            epoch=epoch,
            changes=BlockChanges(
                appended_sequence_ids=[1], appended_num_blocks=[len(block_ids)], appended_block_ids=block_ids
            ),
            new_sequences=[pb.NewSequence(sequence_id=1, sampling=pb.SamplingParams(top_p=1.0))],
            sequence_ids=[1],
            num_tokens=[len(PROMPT)],
            positions=[0],
            samples=[True],
            token_ids=PROMPT,
        )
    )


def decode(epoch: int, step_id: int, position: int, token_id: int, **changes: list[int]) -> pb.WorkerRequest:
    return pb.WorkerRequest(
        step=pb.Step(
            step_id=step_id,
            epoch=epoch,
            changes=BlockChanges(**changes),
            sequence_ids=[1],
            num_tokens=[1],
            positions=[position],
            samples=[True],
            token_ids=[token_id],
        )
    )


def then(epoch: int, step_id: int, position: int) -> pb.WorkerRequest:
    """A decode that goes on from whatever the step before samples."""
    return decode(epoch, step_id, position, 2**32 - 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Iterator[tuple[Path, object]]:
    folder = tmp_path_factory.mktemp("worker")
    llama = random_llama()
    write_gguf(llama, folder / "tiny.gguf")
    return folder, llama


@pytest.fixture(scope="module")
def worker(model) -> Iterator[Worker]:
    worker = Worker(model[0])
    yield worker
    status, log = worker.end()
    assert status == 0, log


@pytest.fixture
def client(worker) -> Iterator[Client]:
    client = Client(worker.target)
    yield client
    client.close()


def epoch_of(client: Client) -> int:
    return client.run(attach(forget=True))[0].description.epoch


def next_id(client: Client) -> int:
    return client.run(attach())[0].description.last_step_id + 1


def test_it_describes_itself_to_whoever_attaches(client):
    (answer,) = client.run(attach())
    description = answer.description
    assert description.worker_id == "tiny"
    assert description.model_name == "Tiny"
    assert (description.block_size, description.num_device_blocks, description.num_host_blocks) == (4, 16, 8)
    assert description.block_bytes == 2 * 2 * 2 * 4 * 16 * 4  # layers, K and V, KV heads, slots, head size, float32
    assert (description.max_model_len, description.vocab_size) == (128, 96)
    assert (description.dtype, description.kernel_backend) == ("float32", "reference")
    assert len(description.model_fingerprint) == 32
    assert 0 < description.epoch < 2**63


def test_it_is_healthy_as_a_process_and_as_a_service(client):
    serving = health_pb2.HealthCheckResponse.SERVING
    assert client.health() == client.health("octavo.gpuworker.v1.GPUWorker") == serving


def test_steps_give_the_greedy_tokens_of_transformers_across_swaps_and_copies(client, model):
    epoch, first = epoch_of(client), next_id(client)
    tokens = list(PROMPT)

    def step(request: pb.WorkerRequest) -> None:
        answer = client.run(attach(), request)[1]
        assert answer.WhichOneof("kind") == "result", answer.failure.message
        assert list(answer.result.sequence_ids) == [1]
        assert answer.result.compute_seconds > 0
        tokens.extend(answer.result.token_ids)

    step(prefill(epoch, first))
    step(decode(epoch, first + 1, 6, tokens[-1], replaced_sequence_ids=[1], replaced_indexes=[1],
                replaced_block_ids=[5], copies=[2, 5]))  # fmt: skip
    # Out to the host and back to other blocks, in one step: the swap-ins use what the swap-outs have just left.
    step(decode(epoch, first + 2, 7, tokens[-1], replaced_sequence_ids=[1, 1], replaced_indexes=[0, 1],
                replaced_block_ids=[5, 9], swap_outs=[9, 0, 5, 1], swap_ins=[0, 5, 1, 9]))  # fmt: skip
    expected = naive_logits(model[1], tokens[:-1], num_last=3).argmax(dim=-1).tolist()
    assert tokens[len(PROMPT) :] == expected


def test_a_repeated_step_gets_the_stored_answer_even_on_another_stream(client):
    epoch, step_id = epoch_of(client), next_id(client)
    first = client.run(attach(), prefill(epoch, step_id), prefill(epoch, step_id))
    again = client.run(attach(), prefill(epoch, step_id))
    assert first[1] == first[2] == again[1]
    assert again[0].description.last_step_id == step_id


def test_queued_steps_go_on_from_the_tokens_that_the_ones_before_sample(client, model):
    epoch, first = epoch_of(client), next_id(client)
    requests = [prefill(epoch, first), then(epoch, first + 1, 6), then(epoch, first + 2, 7)]
    results = [answer.result for answer in client.run(attach(), *requests)[1:]]
    tokens = [*PROMPT, *(result.token_ids[0] for result in results)]
    expected = naive_logits(model[1], tokens[:-1], num_last=3).argmax(dim=-1).tolist()
    assert tokens[len(PROMPT) :] == expected
    assert results[1].idle_seconds > 0
    again = client.run(attach(), *requests[1:])[1:]
    assert [answer.result for answer in again] == results[1:]


def test_a_stream_that_attaches_ends_the_claims_of_those_before_it(client):
    epoch, step_id = epoch_of(client), next_id(client)
    with client.late_stream(prefill(epoch, step_id)) as (answers, go_on):
        next(answers)
        client.run(attach())
        go_on()
        with pytest.raises(grpc.RpcError, match="another stream attached after this one"):
            next(answers)
    assert next_id(client) == step_id


def test_it_shows_its_tables_as_of_the_last_step(client):
    epoch, step_id = epoch_of(client), next_id(client)
    assert not client.inspect().sequence_ids
    client.run(attach(), prefill(epoch, step_id))
    view = client.inspect()
    assert (view.epoch, view.last_step_id) == (epoch, step_id)
    assert (list(view.sequence_ids), list(view.num_blocks), list(view.block_ids)) == ([1], [2], [9, 2])


def test_a_refused_step_is_answered_and_the_stream_goes_on(client):
    epoch, step_id = epoch_of(client), next_id(client)
    answers = client.run(
        attach(),
        prefill(epoch + 1, step_id),
        prefill(epoch, step_id, block_ids=(9, 16)),
        prefill(epoch, step_id),
        decode(epoch, step_id + 2, 6, 1),
    )
    kinds = [answer.WhichOneof("kind") for answer in answers]
    assert kinds == ["description", "failure", "failure", "result", "failure"]
    assert answers[1].failure.epoch_is_stale
    assert answers[2].failure.message == "appended_block_ids holds block 16, but the pool has 16 blocks"
    assert not answers[2].failure.epoch_is_stale
    assert f"step_id is {step_id + 2}" in answers[4].failure.message


def test_a_stream_begins_with_attach(client):
    with pytest.raises(grpc.RpcError) as caught:
        client.run(prefill(1))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "attach was expected first, but step came" in caught.value.details()


def test_sigterm_ends_open_streams_and_exits_with_zero_and_a_new_start_is_a_new_epoch(model):
    folder, _ = model
    target = f"unix:{folder}/other.sock"
    epochs = []
    for _ in range(2):
        worker = Worker(folder, listen=target)
        client = Client(target)
        with client.held_stream() as stream:
            epochs.append(next(stream).description.epoch)
            started = time.monotonic()
            status, log = worker.end()
            assert status == 0, log
            assert time.monotonic() - started < 5
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        client.close()
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        ({"model": "/nowhere/tiny.gguf"}, 1, "/nowhere/tiny.gguf: there is no such file or folder"),
        ({"block_size": 0}, 2, "--block-size is 0, but must be at least 1"),
        ({"max_model_len": 129}, 2, "--max-model-len is 129, but the model has 128 positions"),
        ({"listen": "unix:/nowhere/worker.sock"}, 2, "--listen is unix:/nowhere/worker.sock, which cannot be bound"),
    ],
)
def test_a_worker_that_cannot_start_says_why(model, flags, status, message):
    process = Worker(model[0], **{"listen": f"unix:{model[0]}/never.sock", **flags}).process
    _, log = process.communicate(timeout=START_TIMEOUT_S)
    assert process.returncode == status
    assert message in log
    assert "Traceback" not in log
