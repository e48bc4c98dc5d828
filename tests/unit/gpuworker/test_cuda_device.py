"""How ``CudaDevice`` asks torch: every call against the signature of torch's own, since no device is at hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import MagicMock, create_autospec

import pytest
import torch

from gpuworker.errors import KernelError
from gpuworker.kernels import KVCacheShape
from gpuworker.kernels.cuda_device import CudaDevice

SHAPE = KVCacheShape(3, 2, 1, 4, 64)
DEFAULT_STREAM = SimpleNamespace(cuda_stream=0)


class Streams:
    """torch's streams: handles count from 7, one of them is current."""

    def __init__(self) -> None:
        self.made: list[SimpleNamespace] = []
        self.current = DEFAULT_STREAM

    def make(self, device: torch.device) -> SimpleNamespace:
        self.made.append(SimpleNamespace(cuda_stream=7 + len(self.made), wait_stream=MagicMock()))
        return self.made[-1]

    @contextmanager
    def use(self, stream: SimpleNamespace) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    streams = Streams()

    def replace(name: str, answer: object) -> None:
        monkeypatch.setattr(torch.cuda, name, create_autospec(getattr(torch.cuda, name), side_effect=answer))

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "Stream", streams.make)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", MagicMock)
    replace("is_available", lambda: True)
    replace("get_device_capability", lambda: (9, 0))
    replace("current_device", lambda: 0)
    replace("get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    replace("graph_pool_handle", lambda: (1, 2))
    replace("current_stream", lambda device: streams.current)
    replace("stream", streams.use)
    replace("graph", lambda graph, pool, stream: streams.use(stream))
    replace("synchronize", lambda device: None)
    replace("empty_cache", lambda: None)
    replace("mem_get_info", lambda device: (5, 9))
    return streams


def test_work_goes_to_the_stream_that_torch_uses_and_copies_to_their_own(streams: Streams) -> None:
    device = CudaDevice()
    assert device.torch_device == torch.device("cuda", 0)
    assert device.num_multiprocessors == 132
    assert device.compute_stream == 0
    with streams.use(streams.made[1]):
        assert device.compute_stream == 8
    assert device.copy_stream == 7


def test_work_is_done_once_before_it_is_captured_and_never_on_the_default_stream(streams: Streams) -> None:
    device = CudaDevice()
    done_on = []
    replay = device.record(lambda: done_on.append(streams.current.cuda_stream))
    assert done_on == [8, 8]
    streams.made[1].wait_stream.assert_called_once_with(DEFAULT_STREAM)
    (graph,) = torch.cuda.graph.call_args.args  # type: ignore[attr-defined]
    assert torch.cuda.graph.call_args.kwargs == {"pool": (1, 2), "stream": streams.made[1]}  # type: ignore[attr-defined]
    replay()
    graph.replay.assert_called_once_with()
    assert streams.current is DEFAULT_STREAM


def test_free_memory_is_what_the_device_has_without_torchs_cache(streams: Streams) -> None:
    device = CudaDevice()
    assert device.free_bytes() == 5
    torch.cuda.empty_cache.assert_called_once_with()  # type: ignore[attr-defined]
    device.synchronize()
    torch.cuda.synchronize.assert_called_once_with(device.torch_device)  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no"), RuntimeError("no")])
def test_memory_that_cannot_be_had_is_told_in_bytes(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    device = CudaDevice()
    kind = "device" if isinstance(error, torch.OutOfMemoryError) else "pinned host"
    allocate = device.allocate if kind == "device" else device.allocate_host
    monkeypatch.setattr(torch, "zeros", create_autospec(torch.zeros, side_effect=error))
    with pytest.raises(KernelError, match=f"cannot allocate 12288 bytes of {kind} memory for 3 KV blocks"):
        allocate(SHAPE, torch.float32)


def test_host_memory_is_pinned_and_on_the_host_whatever_the_default_device(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, asked = CudaDevice(), []
    zeros, empty = torch.zeros, torch.empty

    def noting(make):
        def call(*extents, pin_memory=False, **options):
            asked.append(pin_memory)
            return make(*extents, **options)

        return call

    monkeypatch.setattr(torch, "zeros", noting(zeros))
    monkeypatch.setattr(torch, "empty", noting(empty))
    with torch.device("meta"):
        pools = (
            device.allocate_host(SHAPE, torch.float16),
            device.allocate_host(KVCacheShape(0, 2, 1, 4, 64), torch.float16),
        )
        buffer = device.pinned(100)
    assert [memory.device.type for memory in (pools[0].pool, pools[1].pool, buffer)] == ["cpu"] * 3
    assert asked == [True, False, True]
