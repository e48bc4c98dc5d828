"""What the kvmanager costs, on one core: per grant, per step through gRPC and Redis, per restart and per block.

    PYTHONPATH=services python benchmarks/kvmanager_bench.py [--quick]

Every process of the run is bound to the same core. CPU times are those of the processes themselves, so they hold on a
shared machine as well; the latencies hold only if nothing else runs there.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import perf_counter, process_time, sleep

import grpc
import redis

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import (
    EnteringGroups,
    GroupId,
    Plan,
    PoolShape,
    Preemption,
    PrefixHash,
    RunningGroups,
    SealedBlocks,
    SequenceId,
)
from kvmanager.v1 import kvmanager_pb2 as pb
from kvmanager.v1.kvmanager_pb2_grpc import KVManagerStub
from octavo.redis_server import find_redis_server, redis_command

BLOCK_SIZE = 16
NUM_SEQUENCES = 256
US = 1e6


# --- Plans ---


def entering(step_id: int, num_sequences: int, num_tokens: int, first_id: int = 1) -> Plan:
    """``num_sequences`` prompts, staggered so that every decode step needs a sixteenth of the blocks."""
    ids = range(first_id, first_id + num_sequences)
    groups = EnteringGroups(
        token_budget=2**31,
        group_ids=[GroupId(i) for i in ids],
        num_sequences=[1] * num_sequences,
        sequence_ids=[SequenceId(i) for i in ids],
        num_tokens=[num_tokens + i % BLOCK_SIZE for i in ids],
        prefix_hashes=[()] * num_sequences,
    )
    return Plan(step_id, entering=groups)


def decoding(step_id: int, num_sequences: int) -> Plan:
    ids = range(1, num_sequences + 1)
    running = RunningGroups(
        group_ids=[GroupId(i) for i in ids],
        num_sequences=[1] * num_sequences,
        preemptions=[Preemption.RECOMPUTE] * num_sequences,
        sequence_ids=[SequenceId(i) for i in ids],
        num_new_slots=[1] * num_sequences,
    )
    return Plan(step_id, running=running)


def cached(space: BlockSpace, num_blocks: int) -> None:
    """Leaves ``num_blocks`` free blocks in the prefix cache."""
    sequence_id, length = SequenceId(10**9), BLOCK_SIZE * num_blocks
    space.apply(
        Plan(
            space.last_step_id + 1,
            entering=EnteringGroups(2**31, [GroupId(0)], [1], [sequence_id], [length], [()]),
        )
    )
    hashes = [PrefixHash(sha256(index.to_bytes(8)).digest()) for index in range(num_blocks)]
    sealed = SealedBlocks([sequence_id] * num_blocks, range(num_blocks), hashes)
    space.apply(Plan(space.last_step_id + 1, sealed=sealed, released=[sequence_id]))


# --- The core ---


def core_step_us(
    num_blocks: int, blocks_per_table: int, num_cached: int, num_steps: int, num_sequences: int = NUM_SEQUENCES
) -> float:
    """CPU time of ``apply`` for a decode step."""
    space = BlockSpace.empty(PoolShape(BLOCK_SIZE, num_blocks, 0, 0))
    if num_cached:
        cached(space, num_cached)
    space.apply(entering(space.last_step_id + 1, num_sequences, blocks_per_table * BLOCK_SIZE - BLOCK_SIZE))
    plans = [decoding(space.last_step_id + 1 + index, num_sequences) for index in range(num_steps)]
    began = process_time()
    for plan in plans:
        space.apply(plan)
    return (process_time() - began) / num_steps * US


def show_core(num_steps: int) -> None:
    base = core_step_us(50_000, 16, 0, num_steps)
    print(f"core: a decode step of {NUM_SEQUENCES} sequences: {base:.0f} µs, {1 / base * US:,.0f} grants/s (aim 80 µs)")
    for name, cases in {
        "pool size": [(30_000, 16, 0), (200_000, 16, 0), (1_000_000, 16, 0)],
        "table length": [(600_000, 16, 0), (600_000, 128, 0), (600_000, 2048, 0)],
        "cached blocks": [(600_000, 16, 1_000), (600_000, 16, 50_000), (600_000, 16, 500_000)],
    }.items():
        column = {"pool size": 0, "table length": 1, "cached blocks": 2}[name]
        cells = [f"{case[column]:>9,}: {core_step_us(*case, num_steps):4.0f} µs" for case in cases]
        print(f"  by {name:14}", "  ".join(cells))

    cells = [f"{n:>9,}: {core_step_us(50_000, 16, 0, num_steps, n):4.0f} µs" for n in (1, 16, 64, 256)]
    print(f"  by {'sequences':14}", "  ".join(cells))


def show_prompt(num_blocks: int) -> None:
    """CPU time per block of a prompt that enters, is sealed and released; the median of 20."""
    space = BlockSpace.empty(PoolShape(BLOCK_SIZE, 100 * num_blocks, 0, 0))
    spent_us: list[list[float]] = [[], [], []]
    for number in range(20):
        ids = [SequenceId(number)]
        hashes = [PrefixHash(sha256(b"%d %d" % (number, index)).digest()) for index in range(num_blocks)]
        groups = EnteringGroups(2**31, [GroupId(number)], [1], ids, [num_blocks * BLOCK_SIZE], [hashes])
        first = space.last_step_id + 1
        plans = (
            Plan(first, entering=groups),
            Plan(first + 1, sealed=SealedBlocks(ids * num_blocks, range(num_blocks), hashes)),
            Plan(first + 2, released=ids),
        )
        for plan, spent in zip(plans, spent_us, strict=True):
            began = process_time()
            space.apply(plan)
            spent.append((process_time() - began) * US)
    entered, sealed, released = (statistics.median(spent) / num_blocks for spent in spent_us)
    print(f"  per block of a prompt: enters {entered:.2f} µs, sealed {sealed:.2f} µs, released {released:.2f} µs")


def show_memory(num_blocks: int) -> None:
    """Resident memory of a pool in which every block is cached, in a process of its own."""
    script = f"import benchmarks.kvmanager_bench as b; b.print_memory({num_blocks})"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[1], env=environment())


def resident_bytes() -> int:
    """Memory of this process that is in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def print_memory(num_blocks: int) -> None:
    before = resident_bytes()
    space = BlockSpace.empty(PoolShape(BLOCK_SIZE, num_blocks, 0, 0))
    part = num_blocks // 100
    for index in range(100):
        sequence_id = SequenceId(index + 1)
        groups = EnteringGroups(2**31, [GroupId(index + 1)], [1], [sequence_id], [part * BLOCK_SIZE], [()])
        space.apply(Plan(space.last_step_id + 1, entering=groups))
        hashes = [PrefixHash(sha256(n.to_bytes(8)).digest()) for n in range(index * part, (index + 1) * part)]
        space.apply(Plan(space.last_step_id + 1, sealed=SealedBlocks([sequence_id] * part, range(part), hashes)))
    assert space.usage.num_used_device_blocks == num_blocks
    used = (resident_bytes() - before) / num_blocks
    print(f"memory: {used:.0f} bytes per block at {num_blocks:,} blocks, all in tables and cached (aim 200)")


# --- Processes ---


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": "services"}


class Services:
    """A Redis and a kvmanager on Unix sockets in a temporary folder."""

    def __init__(self, folder: Path, snapshot_interval: int) -> None:
        self.address = f"unix:{folder}/k.sock"
        self._interval = snapshot_interval
        self._socket = folder / "r.sock"
        self.redis = subprocess.Popen(
            redis_command(find_redis_server(), self._socket, folder), stdout=subprocess.DEVNULL
        )
        self._wait_for_redis()
        self.kvmanager = self._start()

    def _wait_for_redis(self) -> None:
        client = redis.Redis(unix_socket_path=str(self._socket))
        while True:
            try:
                client.ping()
                return
            except redis.ConnectionError:
                sleep(0.01)

    def _start(self) -> subprocess.Popen[bytes]:
        words = ["--listen", self.address, "--redis", f"unix://{self._socket}", "--log-level", "warning"]
        return subprocess.Popen(
            [sys.executable, "-m", "kvmanager", *words, "--snapshot-interval", str(self._interval)], env=environment()
        )

    def restart(self) -> None:
        self.kvmanager.kill()
        self.kvmanager.wait()
        self.kvmanager = self._start()

    def close(self) -> None:
        for process in (self.kvmanager, self.redis):
            process.kill()
            process.wait()


@contextmanager
def services(snapshot_interval: int) -> Iterator[Services]:
    with tempfile.TemporaryDirectory() as folder:
        running = Services(Path(folder), snapshot_interval)
        try:
            yield running
        finally:
            running.close()


class Stream:
    """One ``Arbitrate`` stream; ``step_id`` is the last step."""

    def __init__(self, address: str, num_blocks: int) -> None:
        # A pool of connections of its own: the shared one would hand out one to a process that was killed.
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._opening = pb.OpenPool(pool_id="bench", epoch=1, block_size=BLOCK_SIZE, num_device_blocks=num_blocks)
        self.step_id = 0

    async def open(self) -> float:
        """Opens the pool and returns the seconds from the moment at which the process listens."""
        await self._channel.channel_ready()
        self._call = KVManagerStub(self._channel).Arbitrate()
        began = perf_counter()
        await self._call.write(pb.PoolRequest(open=self._opening))
        self.step_id = (await self._call.read()).opened.last_step_id
        return perf_counter() - began

    async def step(self, plan: pb.Plan) -> float:
        """Sends a plan and returns the seconds until its grant."""
        self.step_id += 1
        plan.step_id = self.step_id
        request = pb.PoolRequest(plan=plan)
        began = perf_counter()
        await self._call.write(request)
        answer = await self._call.read()
        elapsed = perf_counter() - began
        assert answer.grant.step_id == self.step_id
        return elapsed

    async def close(self) -> None:
        await self._channel.close()


def wire(plan: Plan) -> pb.Plan:
    """A plan of this file as a message."""
    running, entering_groups = plan.running, plan.entering
    return pb.Plan(
        running=pb.RunningGroups(
            group_ids=running.group_ids,
            num_sequences=running.num_sequences,
            preemptions=[pb.PREEMPTION_RECOMPUTE] * len(running.preemptions),
            sequence_ids=running.sequence_ids,
            num_new_slots=running.num_new_slots,
        ),
        entering=pb.EnteringGroups(
            token_budget=entering_groups.token_budget,
            group_ids=entering_groups.group_ids,
            num_sequences=entering_groups.num_sequences,
            sequence_ids=entering_groups.sequence_ids,
            num_tokens=entering_groups.num_tokens,
            prefix_hashes=[b""] * len(entering_groups.group_ids),
        ),
    )


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a running process, user and system."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def show_steps(num_steps: int) -> None:
    with services(snapshot_interval=2000) as running:
        stream = Stream(running.address, 100_000)
        await stream.open()
        await stream.step(wire(entering(1, NUM_SEQUENCES, 100)))
        plan = wire(decoding(1, NUM_SEQUENCES))
        for _ in range(200):
            await stream.step(plan)
        before = cpu_s(running.kvmanager), cpu_s(running.redis), process_time()
        elapsed = [await stream.step(plan) for _ in range(num_steps)]
        after = cpu_s(running.kvmanager), cpu_s(running.redis), process_time()
        await stream.close()
    kvmanager, store, client = ((b - a) / num_steps * US for a, b in zip(before, after, strict=True))
    percentiles = statistics.quantiles(elapsed, n=100)
    print(
        f"step through gRPC and Redis, {NUM_SEQUENCES} sequences: p50 {percentiles[49] * US:.0f} µs (aim 400), "
        f"p99 {percentiles[98] * US:.0f} µs"
    )
    print(f"  CPU: kvmanager {kvmanager:.0f} µs + Redis {store:.0f} µs (aim 250); this client {client:.0f} µs")


async def show_restart(num_entries: int, num_sequences: int) -> None:
    """A pool of 100,000 blocks, most of them in tables, and a journal without a snapshot."""
    num_blocks = 100_000
    per_table = 80_000 // num_sequences - num_entries // BLOCK_SIZE
    with services(snapshot_interval=10**9) as running:
        stream = Stream(running.address, num_blocks)
        await stream.open()
        await stream.step(wire(entering(1, num_sequences, per_table * BLOCK_SIZE)))
        plan = wire(decoding(1, num_sequences))
        for _ in range(num_entries - 2):
            await stream.step(plan)
        await stream.close()
        running.restart()
        again = Stream(running.address, num_blocks)
        elapsed = await again.open()
        used = cpu_s(running.kvmanager)
        assert again.step_id == num_entries - 1
        await again.close()
    print(
        f"restart: {elapsed:.2f} s (aim 1; with its start {used:.2f} s of CPU) with {num_blocks:,} blocks and "
        f"{num_entries:,} entries of {num_sequences} sequences"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps")
    quick = parser.parse_args().quick
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    show_core(100 if quick else 1000)
    show_prompt(1000)
    show_memory(1_000_000)
    asyncio.run(show_steps(500 if quick else 5000))
    for num_sequences in (16, 64):
        asyncio.run(show_restart(1000 if quick else 10_000, num_sequences))


if __name__ == "__main__":
    main()
