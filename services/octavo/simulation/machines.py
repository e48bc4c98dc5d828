"""The paper's servers (Table 1) and what their steps cost; constants and their sources are in ``data``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from octavo.simulation.cost import CostModel

_SECTOR_BYTES = 32  # what an A100 reads at least
_ELEMENT_BYTES = 2  # float16
_KEY_RUN_BYTES = 16  # of one key that lie together in vLLM's layout; values lie apart


class Server(StrEnum):
    """A model on the GPUs that the paper ran it on."""

    OPT_13B = "opt-13b"
    OPT_66B = "opt-66b"
    OPT_175B = "opt-175b"


@dataclass(frozen=True, slots=True)
class Machine:
    """One model on one server."""

    num_layers: int
    hidden_size: int
    num_gpus: int
    num_kv_slots: int
    weights_s: float
    token_s: float
    overhead_s: float
    request_s: float
    prompt_s: float
    memory_bytes_per_s: float  # of one GPU, as the next
    l2_bytes_per_s: float
    flops: float  # of all GPUs, as reached
    engine: Mapping[str, float]

    @property
    def kv_bytes(self) -> int:
        """KV of one token, on all GPUs together."""
        return 2 * self.num_layers * self.hidden_size * _ELEMENT_BYTES


@cache
def machine(server: Server) -> Machine:
    """The constants of a server."""
    data: dict[str, Any] = json.loads((files("octavo.simulation") / "data" / "machines.json").read_text())
    model, engine = data["servers"][server.value], data["engine"]
    gpu, num_gpus = data["gpus"][model["gpu"]], model["num_gpus"]
    flops = num_gpus * gpu["flops"] * engine["products_efficiency"]
    return Machine(
        num_layers=model["num_layers"],
        hidden_size=model["hidden_size"],
        num_gpus=num_gpus,
        num_kv_slots=model["num_kv_slots"],
        weights_s=model["parameter_bytes"] / (num_gpus * gpu["memory_bytes_per_s"] * engine["weights_efficiency"]),
        token_s=2 * model["num_parameters"] / flops,
        overhead_s=model["overhead_s"],
        request_s=model["request_s"],
        prompt_s=model["prompt_s"],
        memory_bytes_per_s=gpu["memory_bytes_per_s"],
        l2_bytes_per_s=gpu["l2_bytes_per_s"],
        flops=flops,
        engine=engine,
    )


def paged_cost(server: Server, block_size: int) -> CostModel:
    """Steps whose attention reads KV through block tables (paper §5.1, Fig. 18a)."""
    engine = machine(server).engine
    return _cost(server, engine["paged_kv_efficiency"] / read_amplification(block_size), block_size)


def contiguous_cost(server: Server, block_size: int) -> CostModel:
    """Steps whose attention reads contiguous KV, as FasterTransformer's kernel does."""
    return _cost(server, machine(server).engine["contiguous_kv_efficiency"], block_size)


def static_cost(server: Server, block_size: int) -> CostModel:
    """Steps of FasterTransformer: all in C++, so that nothing is paid per step, request or prompt."""
    cost = contiguous_cost(server, block_size)
    return CostModel(
        **{name: getattr(cost, name) for name in CostModel.__slots__}
        | {"overhead_s": 0.0, "request_s": 0.0, "prompt_s": 0.0}
    )


def read_amplification(block_size: int) -> float:
    """Bytes that attention moves for each byte that it wants, relative to blocks of 16 (paper §7.2).

    A block keeps 16 bytes of each key together, and of the values one element per token: of a small block only a part
    of each 32-byte sector is wanted.
    """
    keys = min(1.0, block_size * _KEY_RUN_BYTES / _SECTOR_BYTES)
    values = min(1.0, block_size * _ELEMENT_BYTES / _SECTOR_BYTES)
    return 0.5 / keys + 0.5 / values


def _cost(server: Server, kv_efficiency: float, block_size: int) -> CostModel:
    this = machine(server)
    engine, num_gpus = this.engine, this.num_gpus
    num_reductions = 2 * this.num_layers if num_gpus > 1 else 0
    block_bytes = block_size * this.kv_bytes
    kv_token_s = this.kv_bytes / (num_gpus * this.memory_bytes_per_s * kv_efficiency)
    return CostModel(
        weights_s=this.weights_s,
        token_s=this.token_s,
        kv_token_s=kv_token_s,
        shared_kv_token_s=kv_token_s * this.memory_bytes_per_s / this.l2_bytes_per_s,
        pair_s=4 * this.num_layers * this.hidden_size / this.flops,
        overhead_s=this.overhead_s,
        request_s=this.request_s,
        prompt_s=this.prompt_s,
        all_reduce_s=num_reductions * engine["all_reduce_s"],
        all_reduce_token_s=num_reductions * this.hidden_size * _ELEMENT_BYTES / engine["all_reduce_bytes_per_s"],
        swap_block_s=block_bytes / (num_gpus * engine["host_bytes_per_s"]) + engine["swap_block_s"],
        copy_block_s=2 * block_bytes / (num_gpus * this.memory_bytes_per_s * engine["weights_efficiency"]),
    )
