"""What workers are: a model on GPUs, its KV memory and what its steps cost."""

import json
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from octavo.simulation.cost import CostModel

_GPU_BYTES = 80e9
_MEMORY_SHARE = 0.9  # of the GPUs' memory, for weights and KV
_ELEMENT_BYTES = 2  # bfloat16


class ServerName(StrEnum):
    """A model on the GPUs that serve it."""

    LLAMA2_70B = "llama2-70b"  # on 8 A100-80GB
    LLAMA31_8B = "llama3.1-8b"  # on one


def num_kv_slots(name: ServerName) -> int:
    """Tokens whose KV fits beside the weights."""
    server = _server(name)
    room = _MEMORY_SHARE * _GPU_BYTES * server["num_gpus"] - server["parameter_bytes"]
    return int(room // server["kv_bytes"])


def cost_of(name: ServerName) -> CostModel:
    """Steps of paged attention with fused prompts: its products reach the share of the FLOPs that others do."""
    server = _server(name)
    data = _load("octavo.simulation", "machines.json")
    gpu, engine, num_gpus = data["gpus"][server["gpu"]], data["engine"], server["num_gpus"]
    flops = num_gpus * gpu["flops"] * engine["products_efficiency"]
    bytes_per_s = num_gpus * gpu["memory_bytes_per_s"]
    num_reductions = 2 * server["num_layers"] if num_gpus > 1 else 0
    kv_token_s = server["kv_bytes"] / (bytes_per_s * engine["paged_kv_efficiency"])
    return CostModel(
        weights_s=server["parameter_bytes"] / (bytes_per_s * engine["weights_efficiency"]),
        token_s=2 * server["num_parameters"] / flops,
        kv_token_s=kv_token_s,
        shared_kv_token_s=kv_token_s,  # no step tells what its sequences share
        pair_s=4 * server["num_layers"] * server["hidden_size"] / flops,
        overhead_s=server["overhead_s"],
        request_s=server["request_s"],
        prompt_s=server["prompt_s"],
        all_reduce_s=num_reductions * engine["all_reduce_s"],
        all_reduce_token_s=num_reductions * server["hidden_size"] * _ELEMENT_BYTES / engine["all_reduce_bytes_per_s"],
        swap_block_s=0.0,  # nobody swaps and nothing is forked here
        copy_block_s=0.0,
    )


def _server(name: ServerName) -> dict[str, Any]:
    server: dict[str, Any] = _load("octavo.cluster_simulation", "servers.json")[name.value]
    return server


@cache
def _load(package: str, name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((files(package) / "data" / name).read_text())
    return data
