"""The memory of a worker, kept as plainly as possible: counts are counted, promises are added up, nothing is cached.

Decides exactly as ``BlockSpace`` promises, block ids included. Every question is answered from the tables alone.
"""

from collections import Counter
from dataclasses import dataclass, field

from kvmanager.core.plan import BlockChanges, Grant, Plan, PoolShape, PoolUsage, Preemption


@dataclass
class NaiveTable:
    blocks: list[int]
    num_slots: int
    target: int = 0  # blocks that were promised


@dataclass
class NaiveChanges:
    forks: list = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    replaced: list[tuple[int, int, int]] = field(default_factory=list)
    appended: list[tuple[int, list[int]]] = field(default_factory=list)
    swap_outs: list[int] = field(default_factory=list)
    swap_ins: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)

    def freeze(self) -> BlockChanges:
        replaced = [entry for entry in self.replaced if entry[0] not in self.dropped]
        return BlockChanges(
            forks=self.forks,
            dropped=self.dropped,
            replaced_sequence_ids=[entry[0] for entry in replaced],
            replaced_indexes=[entry[1] for entry in replaced],
            replaced_block_ids=[entry[2] for entry in replaced],
            appended_sequence_ids=[sequence_id for sequence_id, _ in self.appended],
            appended_num_blocks=[len(blocks) for _, blocks in self.appended],
            appended_block_ids=[block_id for _, blocks in self.appended for block_id in blocks],
            swap_outs=self.swap_outs,
            swap_ins=self.swap_ins,
            copies=self.copies,
        )


class NaiveSpace:
    def __init__(self, shape: PoolShape) -> None:
        self.shape = shape
        self.tables: dict[int, NaiveTable] = {}
        self.swapped: dict[int, NaiveTable] = {}
        self.free = list(range(shape.num_device_blocks))  # in the order in which they are taken
        self.host_free = list(range(shape.num_host_blocks))
        self.hashes: dict[int, bytes] = {}  # device block → prefix
        self.host_hashes: dict[int, bytes] = {}
        self.changes = NaiveChanges()

    # --- Questions ---

    def count(self, block_id: int) -> int:
        return sum(table.blocks.count(block_id) for table in self.tables.values())

    def holder(self, prefix_hash: bytes | None) -> int | None:
        return next((block for block, known in self.hashes.items() if known == prefix_hash), None)

    def blocks_for(self, num_slots: int) -> int:
        return -(-num_slots // self.shape.block_size)

    def missing(self, wants: list[tuple[NaiveTable, int]]) -> int:
        """Plays the growth of a group through on its counts."""
        missing = 0
        counts = {table.blocks[-1]: self.count(table.blocks[-1]) for table, _ in wants if table.blocks}
        for table, num_slots in wants:
            if num_slots > table.num_slots and table.num_slots % self.shape.block_size and counts[table.blocks[-1]] > 1:
                counts[table.blocks[-1]] -= 1
                missing += 1
            missing += self.blocks_for(num_slots) - len(table.blocks)
        return missing

    def usage(self) -> PoolUsage:
        num_cached = sum(block_id in self.hashes for block_id in self.free)
        return PoolUsage(
            self.shape.num_device_blocks - len(self.free), num_cached, self.shape.num_host_blocks - len(self.host_free)
        )

    # --- Blocks ---

    def take(self) -> int:
        block_id = self.free.pop(0)
        self.hashes.pop(block_id, None)
        return block_id

    def hold(self, block_id: int) -> None:
        if block_id in self.free:
            self.free.remove(block_id)

    def let_go(self, blocks: list[int]) -> None:
        """Blocks that no table has any more go back, the last one first."""
        for block_id in reversed(blocks):
            if self.count(block_id) == 0 and block_id not in self.free:
                if block_id in self.hashes:
                    self.free.append(block_id)
                else:
                    self.free.insert(0, block_id)

    def let_go_on_host(self, blocks: list[int]) -> None:
        held = {block_id for table in self.swapped.values() for block_id in table.blocks}
        for block_id in reversed(blocks):
            if block_id not in held and block_id not in self.host_free:
                self.host_free.insert(0, block_id)
                self.host_hashes.pop(block_id, None)

    # --- One step ---

    def apply(self, plan: Plan) -> Grant:
        self.changes = NaiveChanges()
        self.seal(plan)
        for fork in plan.forks:
            self.fork(fork)
        for sequence_id in plan.released:
            self.release(sequence_id)
        gone = self.append(plan)
        entered, refusal = self.enter(plan, len(gone))
        return Grant(
            step_id=plan.step_id,
            preempted_group_ids=[group_id for group_id, _ in gone],
            preempted_modes=[mode for _, mode in gone],
            admitted_group_ids=[group_id for group_id, _ in entered],
            admitted_sequence_ids=[member[0] for _, members in entered for member in members],
            num_present_tokens=[member[1] for _, members in entered for member in members],
            num_new_slots=[member[2] for _, members in entered for member in members],
            changes=self.changes.freeze(),
            usage=self.usage(),
            refusal=refusal,
        )

    def seal(self, plan: Plan) -> None:
        sealed = plan.sealed
        for sequence_id, index, prefix_hash in zip(
            sealed.sequence_ids, sealed.block_indexes, sealed.hashes, strict=True
        ):
            if sequence_id in self.swapped:
                self.host_hashes.setdefault(self.swapped[sequence_id].blocks[index], prefix_hash)
                continue
            blocks = self.tables[sequence_id].blocks
            own, known = blocks[index], self.holder(prefix_hash)
            if known is None:
                self.hashes.setdefault(own, prefix_hash)
            elif known != own:
                self.hold(known)
                blocks[index] = known
                self.changes.replaced.append((sequence_id, index, known))
                self.let_go([own])

    def fork(self, fork) -> None:
        tier = self.swapped if fork.parent_id in self.swapped else self.tables
        parent = tier[fork.parent_id]
        tier[fork.child_id] = NaiveTable(list(parent.blocks), parent.num_slots)
        if tier is self.tables:
            self.changes.forks.append(fork)
            inherited = [(fork.child_id, i, b) for owner, i, b in self.changes.replaced if owner == fork.parent_id]
            self.changes.replaced += inherited

    def release(self, sequence_id: int) -> None:
        if sequence_id in self.swapped:
            self.let_go_on_host(self.swapped.pop(sequence_id).blocks)
        else:
            self.changes.dropped.append(sequence_id)
            self.let_go(self.tables.pop(sequence_id).blocks)

    def append(self, plan: Plan) -> list[tuple[int, Preemption]]:
        running = plan.running
        members = self.members(running.num_sequences)
        kept = len(members)
        gone = []
        group = 0
        while group < kept:
            ids = [running.sequence_ids[i] for i in members[group]]
            wants = [
                (self.tables[i], self.tables[i].num_slots + running.num_new_slots[k])
                for i, k in zip(ids, members[group], strict=True)
            ]
            if self.missing(wants) > len(self.free):
                kept -= 1
                victims = [running.sequence_ids[i] for i in members[kept]]
                gone.append((running.group_ids[kept], self.preempt(victims, running.preemptions[kept])))
                continue
            for sequence_id, (table, num_slots) in zip(ids, wants, strict=True):
                self.grow(sequence_id, table, num_slots)
            group += 1
        return gone

    def members(self, num_sequences) -> list[range]:
        ends = [sum(num_sequences[: i + 1]) for i in range(len(num_sequences))]
        return [range(end - count, end) for end, count in zip(ends, num_sequences, strict=True)]

    def grow(self, sequence_id: int, table: NaiveTable, num_slots: int, *, entering: bool = False) -> None:
        shared = table.blocks and self.count(table.blocks[-1]) > 1
        if num_slots > table.num_slots and table.num_slots % self.shape.block_size and shared:
            source, table.blocks[-1] = table.blocks[-1], self.take()
            self.changes.copies += (source, table.blocks[-1])
            if not entering:
                self.changes.replaced.append((sequence_id, len(table.blocks) - 1, table.blocks[-1]))
        added = [self.take() for _ in range(self.blocks_for(num_slots) - len(table.blocks))]
        table.blocks += added
        table.num_slots = num_slots
        if entering:
            self.changes.appended.append((sequence_id, list(table.blocks)))
        elif added:
            self.changes.appended.append((sequence_id, added))

    def preempt(self, sequence_ids: list[int], asked: Preemption) -> Preemption:
        tables = [self.tables[i] for i in sequence_ids]
        distinct = list(dict.fromkeys(block_id for table in tables for block_id in table.blocks))
        if asked is Preemption.RECOMPUTE or len(distinct) > len(self.host_free):
            for sequence_id in sequence_ids:
                self.release(sequence_id)
            return Preemption.RECOMPUTE
        there = {block_id: self.host_free.pop(0) for block_id in distinct}
        for block_id, host_block in there.items():
            self.changes.swap_outs += (block_id, host_block)
            if block_id in self.hashes:
                self.host_hashes[host_block] = self.hashes[block_id]
        for sequence_id, table in zip(sequence_ids, tables, strict=True):
            self.swapped[sequence_id] = NaiveTable([there[block_id] for block_id in table.blocks], table.num_slots)
        for sequence_id in sequence_ids:
            self.release_device(sequence_id)
        return Preemption.SWAP

    def release_device(self, sequence_id: int) -> None:
        self.changes.dropped.append(sequence_id)
        self.let_go(self.tables.pop(sequence_id).blocks)

    # --- Entering ---

    def enter(self, plan: Plan, num_gone: int) -> tuple[list, str]:
        entering, entered = plan.entering, []
        budget = entering.token_budget
        for group_id, members in zip(entering.group_ids, self.members(entering.num_sequences), strict=True):
            if num_gone:
                return [], f"group {group_id} waits while {num_gone} groups give way"
            wants = [(entering.sequence_ids[i], entering.num_tokens[i], entering.prefix_hashes[i]) for i in members]
            refusal = self.refusal(wants, budget)
            if refusal:
                return entered, "" if entered else f"group {group_id} {refusal}"
            entered.append((group_id, self.admit(wants, budget)))
            budget -= sum(new for _, _, new in entered[-1][1])
        return entered, ""

    def refusal(self, wants: list, budget: int) -> str:
        if budget <= 0:
            return "waits for token budget"
        promised = sum(max(0, table.target - len(table.blocks)) for table in self.tables.values())
        watermark = self.shape.watermark_blocks if self.tables else 0
        words = f"{len(self.free)} are free, {promised} of them promised, watermark {watermark}"
        available = len(self.free) - promised - watermark
        if available <= 0:
            return f"needs blocks; {words}"
        needed = self.needed(wants)
        return f"needs {needed} blocks; {words}" if needed > available else ""

    def hits(self, num_tokens: int, prefix_hashes) -> list[int]:
        hits = []
        for prefix_hash in prefix_hashes[: (num_tokens - 1) // self.shape.block_size]:
            if self.holder(prefix_hash) is None:
                break
            hits.append(self.holder(prefix_hash))
        return hits

    def needed(self, wants: list) -> int:
        """Free blocks that leave the queue if the whole group were admitted without a budget."""
        revived, fetched, needed, shared = set(), set(), 0, Counter()
        for sequence_id, num_tokens, prefix_hashes in wants:
            swapped = self.swapped.get(sequence_id)
            if swapped is None:
                found = self.hits(num_tokens, prefix_hashes)
                needed -= len(found)
            else:
                found = []
                for host_block in swapped.blocks:
                    known = self.holder(self.host_hashes.get(host_block, b"none"))
                    if known is None:
                        fetched.add(host_block)
                    else:
                        found.append(known)
                needed -= len(swapped.blocks)
                if swapped.num_slots % self.shape.block_size:
                    shared[swapped.blocks[-1]] += 1
            needed += self.blocks_for(num_tokens)
            revived.update(block_id for block_id in found if block_id in self.free)
        for host_block, writers in shared.items():
            owners = sum(host_block in table.blocks for table in self.swapped.values())
            needed += min(writers, owners - 1)
        return needed + len(revived) + len(fetched)

    def admit(self, wants: list, budget: int) -> list[tuple[int, int, int]]:
        found = {i: self.hits(num_tokens, hashes) for i, num_tokens, hashes in wants if i not in self.swapped}
        for hits in found.values():
            for block_id in hits:
                self.hold(block_id)
        returning = self.swap_in([sequence_id for sequence_id, _, _ in wants if sequence_id in self.swapped])
        for sequence_id, hits in found.items():
            returning[sequence_id] = NaiveTable(hits, len(hits) * self.shape.block_size)
        # Every table counts before any of them grows: what two of them share is copied before it is written.
        self.tables |= {sequence_id: returning[sequence_id] for sequence_id, _, _ in wants}
        rows = []
        for sequence_id, num_tokens, _ in wants:
            table = returning[sequence_id]
            table.target = self.blocks_for(num_tokens)
            present = table.num_slots
            new = min(num_tokens - present, budget)
            budget -= new
            self.grow(sequence_id, table, present + new, entering=True)
            rows.append((sequence_id, present, new))
        return rows

    def swap_in(self, sequence_ids: list[int]) -> dict[int, NaiveTable]:
        blocks = list(dict.fromkeys(b for i in sequence_ids for b in self.swapped[i].blocks))
        here = {b: self.holder(self.host_hashes.get(b, b"none")) for b in blocks}
        for known in here.values():
            if known is not None:
                self.hold(known)
        for host_block, known in list(here.items()):
            if known is None:
                here[host_block] = block_id = self.take()
                self.changes.swap_ins += (host_block, block_id)
                prefix_hash = self.host_hashes.get(host_block)
                if prefix_hash is not None and self.holder(prefix_hash) is None:
                    self.hashes[block_id] = prefix_hash
        returning = {}
        for sequence_id in sequence_ids:
            table = self.swapped[sequence_id]
            returning[sequence_id] = NaiveTable([here[b] for b in table.blocks], table.num_slots)
        for sequence_id in sequence_ids:
            self.let_go_on_host(self.swapped.pop(sequence_id).blocks)
        return returning
