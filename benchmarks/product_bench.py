"""How near products with packed weights come to memory speed and to torch's matrix products.

One row through a matrix too large for any cache, in turn with a plain read of its bytes: GB/s. Many rows through a
layer's gate of SmolLM2-135M, in turn with torch's float32 product of the same weights: GFLOP/s. Medians of the rounds;
with one thread of its CPU time, which other load on the machine disturbs less:
``python benchmarks/product_bench.py [--precision int8] [--isa avx2] [--threads 2]``.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import gguf
import numpy as np
import torch

from gpuworker.native.formats import WeightFormat, to_float32
from gpuworker.native.library import StepLibrary
from gpuworker.native.precision import Precision
from gpuworker.native.products import PackedWeights, Products

LARGE_BYTES = 64e6
NUM_INPUTS, NUM_OUTPUTS = 768, 1536  # gate's 576 inputs, up to what blocks of 256 allow
ROW_COUNTS = (8, 32, 128, 512)


def random_rows(weight_format: WeightFormat, num_outputs: int) -> np.ndarray:
    """Rows of NUM_INPUTS; bytes whose every pair is a float16 between 2^-7 and 1, so that all scales are sound."""
    inputs, num_bytes = gguf.GGML_QUANT_SIZES[weight_format.ggml_type]
    shape = (num_outputs, NUM_INPUTS // inputs * num_bytes)
    return np.random.default_rng(1).integers(0x20, 0x3C, shape, dtype=np.uint8)


def median_seconds(functions: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run in turn, so that all see the same machine."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            function()
            seconds[name].append(clock() - start)
    return {name: median(values) for name, values in seconds.items()}


def measure_one_row(products: Products, weight_format: WeightFormat, precision: Precision, rounds: int) -> None:
    """Prints one line."""
    row_bytes = random_rows(weight_format, 1).nbytes
    rows = random_rows(weight_format, int(LARGE_BYTES / row_bytes))
    weights = products.pack(weight_format, rows, NUM_INPUTS)
    x = np.ones((1, NUM_INPUTS), np.float32)
    words = torch.from_numpy(weights.packed).view(torch.int32)
    functions = {
        "read": lambda: words.sum(dtype=torch.int32),
        "product": lambda: products.multiply(weights, x, precision),
    }
    rates = {name: len(weights.packed) / s / 1e9 for name, s in median_seconds(functions, rounds).items()}
    print(
        f"{weight_format.name:9} 1 row   read {rates['read']:6.1f}   product {rates['product']:6.1f} GB/s"
        f"   {rates['product'] / rates['read']:5.2f} of read"
    )


def measure_many_rows(
    products: Products, weights: PackedWeights, dense: torch.Tensor, precision: Precision, rounds: int
) -> None:
    """Prints a line for each number of rows."""
    for num_rows in ROW_COUNTS:
        x = np.random.default_rng(2).normal(size=(num_rows, NUM_INPUTS)).astype(np.float32)
        columns = torch.from_numpy(x)
        functions: dict[str, Callable[[], object]] = {
            "torch": partial(torch.mm, columns, dense),
            "product": partial(products.multiply, weights, x, precision),
        }
        operations = 2e-9 * num_rows * NUM_INPUTS * NUM_OUTPUTS
        rates = {name: operations / s for name, s in median_seconds(functions, rounds).items()}
        print(
            f"{weights.weight_format.name:9} {num_rows:3} rows   torch {rates['torch']:6.1f}   product"
            f" {rates['product']:6.1f} GFLOP/s   {rates['product'] / rates['torch']:5.2f} of torch"
        )


def main() -> None:
    """Measures all formats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=[precision.name.lower() for precision in Precision], default="float32")
    parser.add_argument("--isa", default="auto", help="auto, amx, avx512_bf16, avx512, avx2 or portable")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--formats", nargs="*", choices=[f.name for f in WeightFormat], default=["Q4_1", "Q8_0"])
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    library = StepLibrary()
    library.select_isa(arguments.isa)
    products, precision = Products(library), Precision[arguments.precision.upper()]
    print(f"cpu[{library.isa}], {arguments.precision}, {arguments.threads} threads")
    for weight_format in (WeightFormat[name] for name in arguments.formats):
        measure_one_row(products, weight_format, precision, arguments.rounds)
        rows = random_rows(weight_format, NUM_OUTPUTS)
        dense = torch.from_numpy(to_float32(weight_format.ggml_type.name, rows)).T.contiguous()
        measure_many_rows(products, products.pack(weight_format, rows, NUM_INPUTS), dense, precision, arguments.rounds)


if __name__ == "__main__":
    main()
