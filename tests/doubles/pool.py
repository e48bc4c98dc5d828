"""A kvmanager in a page: block tables, reference counts and a prefix cache, kept as plainly as possible."""

from collections import Counter
from dataclasses import dataclass, field

from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.core.steps import BlockChanges, Grant, Plan, PoolUsage, Preemption


@dataclass
class Changes:
    """Block changes as the worker double reads them."""

    dropped: list[int] = field(default_factory=list)
    replaced: list[tuple[int, int, int]] = field(default_factory=list)  # sequence, index, block
    appended: list[tuple[int, list[int]]] = field(default_factory=list)


class PoolDouble:
    """Answers plans as the step protocol promises. Refuses, by assertion, a plan that breaks it."""

    def __init__(self, num_blocks: int, block_size: int, watermark: int = 0, last_step_id: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.watermark = watermark
        self.last_step_id = last_step_id
        self.last_grant: Grant | None = None
        self.tables: dict[int, list[int]] = {}
        self.num_slots: dict[int, int] = {}
        self.targets: dict[int, int] = {}  # tokens promised to each admitted sequence
        self.counts: Counter[int] = Counter()
        self.cache: dict[bytes, int] = {}

    @property
    def free(self) -> list[int]:
        """Free blocks, those without a cached hash first."""
        cached = set(self.cache.values())
        blocks = [block for block in range(self.num_blocks) if not self.counts[block]]
        return sorted(blocks, key=lambda block: block in cached)

    def forget_sequences(self) -> None:
        for sequence_id in list(self.tables):
            self._release(sequence_id)

    def grant(self, plan: Plan) -> Grant:
        if self.last_grant is not None and plan.step_id == self.last_step_id:
            return self.last_grant
        assert plan.step_id == self.last_step_id + 1 or not self.last_step_id, "step ids are consecutive"
        self.last_step_id = plan.step_id
        self._changes = Changes()
        self._seal(plan)
        for sequence_id in plan.released:
            self._release(sequence_id)
        preempted = self._grow(plan)
        admitted, present, slots, refusal = ([], [], [], "") if preempted else self._admit(plan)
        groups = plan.entering.group_ids[: len(admitted)]
        self.last_grant = Grant(
            step_id=plan.step_id,
            changes=BlockChanges(self._changes),
            usage=PoolUsage(self.num_blocks - len(self.free), len(self.cache), 0),
            preempted_group_ids=preempted,
            preempted_modes=[Preemption.RECOMPUTE] * len(preempted),
            admitted_group_ids=groups,
            admitted_sequence_ids=admitted,
            num_present_tokens=present,
            num_new_slots=slots,
            refusal=refusal,
        )
        return self.last_grant

    def _seal(self, plan: Plan) -> None:
        for i, (sequence_id, index) in enumerate(zip(plan.sealed_sequence_ids, plan.sealed_block_indexes, strict=True)):
            assert (index + 1) * self.block_size <= self.num_slots[sequence_id], "sealed before it was full"
            block_hash = plan.sealed_hashes[i * HASH_BYTES : (i + 1) * HASH_BYTES]
            self.cache.setdefault(block_hash, self.tables[sequence_id][index])

    def _release(self, sequence_id: int) -> None:
        for block in self.tables.pop(sequence_id):
            self.counts[block] -= 1
        del self.num_slots[sequence_id], self.targets[sequence_id]
        if hasattr(self, "_changes"):
            self._changes.dropped.append(sequence_id)

    def _grow(self, plan: Plan) -> list[int]:
        running = plan.running
        assert set(running.num_sequences) <= {1}, "groups of one"
        rows = list(zip(running.group_ids, running.sequence_ids, running.num_new_slots, strict=True))
        preempted: list[int] = []
        while rows:
            group_id, sequence_id, num = rows.pop(0)
            while self._missing(sequence_id, self.num_slots[sequence_id] + num) > len(self.free):
                victim_group, victim, _ = rows.pop() if rows else (group_id, sequence_id, 0)
                preempted.append(victim_group)
                self._release(victim)
                if victim == sequence_id:
                    break
            if sequence_id in self.tables:
                self._append(sequence_id, num)
        return preempted

    def _admit(self, plan: Plan) -> tuple[list[int], list[int], list[int], str]:
        entering, budget = plan.entering, plan.entering.token_budget
        admitted, present, slots = [], [], []
        for sequence_id, num_tokens, hashes in zip(
            entering.sequence_ids, entering.num_tokens, entering.prefix_hashes, strict=True
        ):
            assert len(hashes) == HASH_BYTES * (num_tokens // self.block_size)
            hits = self._hits(hashes, num_tokens)
            needed = -(-num_tokens // self.block_size) - len(hits)
            promised = sum(self._missing(s, target) for s, target in self.targets.items())
            spare = len([block for block in self.free if block not in hits]) - promised
            if spare - needed < (self.watermark if self.tables else 0):
                return admitted, present, slots, "" if admitted else f"{needed} blocks needed, {spare} free"
            if not budget:
                break
            self.tables[sequence_id] = list(hits)
            self.counts.update(hits)
            if hits:
                self._changes.appended.append((sequence_id, list(hits)))
            self.num_slots[sequence_id] = len(hits) * self.block_size
            self.targets[sequence_id] = num_tokens
            num = min(budget, num_tokens - self.num_slots[sequence_id])
            budget -= num
            admitted.append(sequence_id)
            present.append(self.num_slots[sequence_id])
            slots.append(num)
            self._append(sequence_id, num)
        return admitted, present, slots, ""

    def _hits(self, hashes: bytes, num_tokens: int) -> list[int]:
        hits = []
        for index in range((num_tokens - 1) // self.block_size):
            block = self.cache.get(hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES])
            if block is None:
                break
            hits.append(block)
        return hits

    def _missing(self, sequence_id: int, num_slots: int) -> int:
        return max(0, -(-num_slots // self.block_size) - len(self.tables[sequence_id]))

    def _append(self, sequence_id: int, num: int) -> None:
        self.num_slots[sequence_id] += num
        blocks = self.free[: self._missing(sequence_id, self.num_slots[sequence_id])]
        self.cache = {block_hash: block for block_hash, block in self.cache.items() if block not in blocks}
        self.counts.update(blocks)
        self.tables[sequence_id] += blocks
        if blocks:
            self._changes.appended.append((sequence_id, blocks))
