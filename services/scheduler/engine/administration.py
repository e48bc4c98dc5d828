"""What an engine tells administrators of itself, and how it holds still for them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from scheduler.core.prefix_hash import HASH_BYTES, PrefixHasher
from scheduler.core.sequence import SequenceGroup
from scheduler.engine.replica import Replica
from scheduler.errors import NotFound, NotReady, RequestRefused
from scheduler.inspection import (
    Audit,
    Finding,
    LiveRequest,
    LiveSequence,
    PoolInspector,
    RequestList,
    Tables,
    WorkerInspector,
)

PAUSE_S = 5.0
"""An audit waits this long for the steps in hand, and holds the next one up no longer than this."""

MAX_NAMED = 20
"""Differing tables that an audit names; the others are counted."""


class Administration:
    """``Administrator`` over the replica that schedules a pool."""

    def __init__(self, replica: Replica, pools: PoolInspector, worker: WorkerInspector) -> None:
        self._replica = replica
        self._worker = worker
        self.pools = pools

    async def close(self) -> None:
        """Ends the connections."""
        await self.pools.close()
        await self._worker.close()

    async def resolve(self, pool_id: str | None) -> str:
        """The pool that is meant. Raises ``NotFound`` if there is none, or none of that id."""
        known = [pool.pool_id for pool in (await self.pools.pools()).pools]
        if pool_id is None and len(known) != 1 and self._replica.worker_id in known:
            return self._replica.worker_id
        if pool_id is None and known:
            return known[0]
        if pool_id not in known:
            raise NotFound(f"pool is {pool_id!r}, but there are {known}" if pool_id else "no pool was opened yet")
        return pool_id

    def live_requests(self) -> RequestList:
        """Requests that have not ended, in order of arrival."""
        scheduler = self._replica.scheduler
        return RequestList([_live_request(group) for group in scheduler.groups] if scheduler else [])

    def prefix_hash(self, token_ids: Sequence[int], cache_salt: str) -> bytes:
        """The hash of the last full block of a prompt. Raises ``RequestRefused`` if there is none."""
        scheduler = self._replica.scheduler
        if scheduler is None:
            raise NotReady(self._replica.progress.trouble)
        block_size = scheduler.memory.limits.block_size
        if len(token_ids) < block_size:
            raise RequestRefused(
                f"prompt has {len(token_ids)} tokens, but a block has {block_size}, and only full ones are cached",
                param="prompt",
            )
        hashes = bytearray()
        PrefixHasher(scheduler.memory.domain, block_size).extend(hashes, token_ids, cache_salt)
        return bytes(hashes[-HASH_BYTES:])

    async def audit(self, pool_id: str) -> Audit:
        """The kvmanager's audit; then its tables and the worker's, both as of the same step boundary."""
        audit = await self.pools.audit(pool_id)
        if pool_id != self._replica.worker_id:
            note = f"worker: pool {pool_id!r} belongs to a worker that this scheduler does not use"
            return replace(audit, not_compared=[note])
        try:
            async with self._between_steps():
                ours, theirs = await asyncio.gather(self.pools.tables(pool_id), self._worker.tables())
        except NotReady as error:
            return replace(audit, not_compared=[f"worker: {error}"])
        return replace(audit, findings=[*audit.findings, *worker_findings(ours, theirs)])

    @asynccontextmanager
    async def _between_steps(self) -> AsyncIterator[None]:
        """Holds the engine up between two steps. Raises ``NotReady`` if there is no such moment in time."""
        try:
            async with asyncio.timeout(PAUSE_S), self._replica.boundary.held():
                scheduler = self._replica.scheduler
                if scheduler is None or scheduler.unanswered_plan or scheduler.unanswered_steps:
                    raise NotReady(self._replica.progress.trouble or "a step waits for its answer")
                yield
        except TimeoutError:
            raise NotReady(f"no step boundary was reached, or compared at, within {PAUSE_S:g} s") from None


def worker_findings(ours: Tables, theirs: Tables) -> list[Finding]:
    """Where the worker's tables are not the kvmanager's (``ours``).

    Tables without blocks do not count. Neither does a step of 0: that side has begun anew and may follow any step.
    """
    if ours.epoch != theirs.epoch:
        return [Finding("worker", f"epoch is {theirs.epoch}, not {ours.epoch}")]
    found = []
    if 0 not in (theirs.step_id, ours.step_id) and theirs.step_id != ours.step_id:
        found.append(f"the last step is {theirs.step_id}, not {ours.step_id}")
    known = {sequence_id: blocks for sequence_id, blocks in ours.blocks.items() if blocks}
    unequal = [
        sequence_id
        for sequence_id in {**known, **theirs.blocks}
        if known.get(sequence_id) != theirs.blocks.get(sequence_id)
    ]
    found += [
        f"sequence {sequence_id}: blocks are {_shown(theirs, sequence_id)}, not {_shown(ours, sequence_id)}"
        for sequence_id in unequal[:MAX_NAMED]
    ]
    if len(unequal) > MAX_NAMED:
        found.append(f"the tables of {len(unequal) - MAX_NAMED} more sequences differ")
    return [Finding("worker", message) for message in found]


def _shown(tables: Tables, sequence_id: int) -> str:
    return str(list(tables.blocks.get(sequence_id, ())) or "none")


def _live_request(group: SequenceGroup) -> LiveRequest:
    return LiveRequest(
        request_id=group.request.request_id,
        group_id=group.group_id,
        num_cached_tokens=group.num_cached_tokens or 0,
        num_preemptions=group.num_preemptions,
        sequences=[
            LiveSequence(
                sequence_id=sequence.sequence_id,
                choice_index=sequence.choice_index,
                status=sequence.status.value,
                num_prompt_tokens=sequence.num_prompt_tokens,
                num_output_tokens=sequence.num_output_tokens,
                num_computed_tokens=sequence.num_computed_tokens,
            )
            for sequence in group.sequences
        ],
    )
