"""What keeping the services apart costs: the cluster's throughput over that of the same engine in one process.

    python benchmarks/in_process_bench.py [--workload batch] [--rounds 5] [--num-requests 32]

Both run at once and idle while the other is measured; each round measures both, beginning with another one each time,
with text that no round before had. Prints each round and the median over the rounds of the cluster's output tokens a
second over the process's. The aim is 0.97. Run it on a machine with nothing else to do.
"""

import argparse
import asyncio
import os
import statistics
from contextlib import AsyncExitStack
from dataclasses import replace

from rich.console import Console

from octavo import catalog
from octavo.bench.loads import LoadOptions, Target
from octavo.bench.private_cluster import plain_settings, private_cluster
from octavo.bench.session import measure
from octavo.bench.summary import Objectives
from octavo.settings import ClusterSettings

console = Console(stderr=True, highlight=False)


async def compare(settings: ClusterSettings, arguments: argparse.Namespace) -> list[float]:
    """The cluster's share of the process's throughput, for each round."""
    async with AsyncExitStack() as stack:
        apart = await stack.enter_async_context(private_cluster(settings, console))
        together = await stack.enter_async_context(private_cluster(replace(settings, in_process=True), console))
        urls = [apart, together]
        shares = []
        for index in range(arguments.rounds):
            load = LoadOptions(workload=arguments.workload, num_requests=arguments.num_requests, seed=index + 1)
            tokens_per_s = {url: await _tokens_per_s(url, load) for url in (urls if index % 2 else urls[::-1])}
            shares.append(tokens_per_s[apart] / tokens_per_s[together])
            both = f"cluster {tokens_per_s[apart]:.1f}, one process {tokens_per_s[together]:.1f} output tokens/s"
            print(f"round {index + 1}: {both}, a share of {shares[-1]:.3f}")
        return shares


async def _tokens_per_s(url: str, load: LoadOptions) -> float:
    (result,) = await measure(Target(url=url), [load], Objectives(), 1, console)
    return result.summary.output_tokens_per_s


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-requests", type=int)
    parser.add_argument("--model", default=catalog.DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    settings = plain_settings(arguments.model, arguments.threads)
    shares = asyncio.run(compare(settings, arguments))
    print(f"median: the cluster keeps {statistics.median(shares):.1%} of one process's throughput")


if __name__ == "__main__":
    main()
