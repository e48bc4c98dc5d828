"""The core against a naive model and a worker that remembers what it wrote, in every order hypothesis thinks of."""

from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from doubles.naive_space import NaiveSpace
from doubles.worker_memory import WorkerMemory
from kvmanager.adapters.state_codec import StateCodec
from kvmanager.core.plan import (
    EnteringGroups,
    Fork,
    Grant,
    Plan,
    PoolShape,
    Preemption,
    PrefixHash,
    RunningGroups,
    SealedBlocks,
)
from kvmanager.core.pool_state import Opening, PoolState
from kvmanager.errors import BrokenPromise, MalformedPlan

MAX_TOKENS = 18


def prefix_hash(tokens: list[int]) -> PrefixHash:
    return PrefixHash(sha256(bytes(tokens)).digest())


@dataclass
class Sequence:
    """What a scheduler knows of a sequence: its tokens, and for how many of them KV exists."""

    sequence_id: int
    tokens: list[int]
    num_slots: int = 0
    num_sealed: int = 0


@dataclass
class Group:
    group_id: int
    members: list[Sequence] = field(default_factory=list)


class BlockSpaceMachine(RuleBasedStateMachine):
    """Every rule adds to the next plan or carries it out."""

    @initialize(block_size=st.sampled_from([1, 2, 4]), watermark=st.integers(0, 2), num_host=st.integers(0, 20))
    def open(self, block_size: int, watermark: int, num_host: int) -> None:
        shape = PoolShape(block_size, 40 // block_size + 1, num_host, watermark)
        self.block_size = block_size
        self.naive = NaiveSpace(shape)
        self.worker = WorkerMemory(shape.num_device_blocks, num_host, block_size)
        self.opening = Opening(1, shape)
        self.state = PoolState()
        self.state.open(self.opening)
        self.restart_from = self.state.snapshot()
        self.journal: list[Plan | Opening] = []
        self.step_id = 0
        self.next_id = 1
        self.waiting: list[Group] = []
        self.running: list[Group] = []
        self.swapped: list[Group] = []
        self.forks: list[Fork] = []
        self.released: list[int] = []
        self.sealed: list[tuple[int, int, PrefixHash]] = []

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    # --- What a plan is made of ---

    @rule(seed=st.integers(0, 2**32), num_steps=st.integers(1, 20), budget=st.sampled_from([3, 9, 40]))
    def serve(self, seed: int, num_steps: int, budget: int) -> None:
        """Some steps, with requests that come, fork and go between them."""
        random = Random(seed)
        for _ in range(num_steps):
            if len(self.waiting) < 3 and random.random() < 0.5:
                self.arrive(random)
            if random.random() < 0.3:
                self.fork(random)
            if random.random() < 0.1:
                self.release(random)
            self.step(random, 0 if random.random() < 0.1 else budget)
            self.nothing_contradicts()
            self.every_sequence_reads_what_it_wrote()

    def arrive(self, random: Random) -> None:
        """One to three prompts over a tiny vocabulary, so that prefixes meet."""
        prompts = [random.choices((0, 1), k=random.randint(1, 14)) for _ in range(random.choice([1, 1, 2, 3]))]
        self.waiting.append(Group(self.new_id(), [Sequence(self.new_id(), prompt) for prompt in prompts]))

    def fork(self, random: Random) -> None:
        """A child takes all that its parent has, but continues with another token; also where the parent is swapped."""
        groups = [group for group in self.running + self.swapped if len(group.members) < 3]
        parents = [(group, member) for group in groups for member in group.members if member.num_slots]
        if not parents:
            return
        group, parent = random.choice(parents)
        known = parent.tokens[: parent.num_slots]
        child = Sequence(self.new_id(), [*known, random.randint(0, 1)], parent.num_slots, parent.num_sealed)
        self.forks.append(Fork(parent.sequence_id, child.sequence_id))
        group.members.append(child)

    def release(self, random: Random) -> None:
        """A sequence ends, for whatever reason and in whatever state."""
        groups = self.running + self.swapped + self.waiting
        if groups:
            group = random.choice(groups)
            self.end(group, random.choice(group.members))

    def end(self, group: Group, member: Sequence) -> None:
        group.members.remove(member)
        if group not in self.waiting:
            self.released.append(member.sequence_id)
        for queue in (self.running, self.swapped, self.waiting):
            queue[:] = [group for group in queue if group.members]

    def seal(self, random: Random) -> None:
        """Full blocks are reported head first, now or in a later step."""
        known = {fork.child_id for fork in self.forks}
        for group in self.running + self.swapped:
            for member in group.members:
                if member.sequence_id in known:
                    continue
                while member.num_sealed < member.num_slots // self.block_size and random.random() < 0.7:
                    end = (member.num_sealed + 1) * self.block_size
                    sealed = (member.sequence_id, member.num_sealed, prefix_hash(member.tokens[:end]))
                    self.sealed.append(sealed)
                    member.num_sealed += 1

    # --- The step ---

    def step(self, random: Random, budget: int) -> None:
        self.seal(random)
        plan = self.plan(random, budget)
        grant = self.state.apply(plan)
        assert grant == self.naive.apply(plan)
        self.journal.append(self.cut(plan, grant))
        self.note(grant)
        self.last_plan = plan
        self.commit(random, plan, grant)

    def note(self, grant: Grant) -> None:
        """Counts what happened, for ``--hypothesis-show-statistics``."""
        changes = grant.changes
        for name in ("forks", "replaced_indexes", "swap_outs", "swap_ins", "copies"):
            if getattr(changes, name):
                event(f"{name} in a step")
        for mode in grant.preempted_modes:
            event(f"preempted by {mode.name}")
        if any(grant.num_present_tokens):
            event("present tokens at admission")

    def plan(self, random: Random, budget: int) -> Plan:
        self.step_id += 1
        members = [member for group in self.running for member in group.members]
        entering = self.swapped + self.waiting
        candidates = [member for group in entering for member in group.members]
        sealed = self.sealed
        plan = Plan(
            step_id=self.step_id,
            sealed=SealedBlocks([s[0] for s in sealed], [s[1] for s in sealed], [s[2] for s in sealed]),
            forks=self.forks,
            released=self.released,
            running=RunningGroups(
                group_ids=[group.group_id for group in self.running],
                num_sequences=[len(group.members) for group in self.running],
                preemptions=[random.choice(list(Preemption)) for _ in self.running],
                sequence_ids=[member.sequence_id for member in members],
                num_new_slots=[self.num_new_slots(random, member) for member in members],
            ),
            entering=EnteringGroups(
                token_budget=budget,
                group_ids=[group.group_id for group in entering],
                num_sequences=[len(group.members) for group in entering],
                sequence_ids=[member.sequence_id for member in candidates],
                num_tokens=[len(member.tokens) for member in candidates],
                prefix_hashes=[self.prefix_hashes(member) for member in candidates],
            ),
        )
        self.forks, self.released, self.sealed = [], [], []
        return plan

    def num_new_slots(self, random: Random, member: Sequence) -> int:
        """The next chunk of a prompt or the slot of the last token; now and then a sequence skips a step."""
        return 0 if random.random() < 0.1 else random.randint(1, len(member.tokens) - member.num_slots)

    def prefix_hashes(self, member: Sequence) -> list[PrefixHash]:
        ends = range(self.block_size, len(member.tokens) + 1, self.block_size)
        return [prefix_hash(member.tokens[:end]) for end in ends]

    def cut(self, plan: Plan, grant: Grant) -> Plan:
        """What the journal keeps of a plan: the admitted groups, or the head of the list."""
        entering = plan.entering
        num_groups = max(1, len(grant.admitted_group_ids))
        num_sequences = sum(entering.num_sequences[:num_groups])
        kept = EnteringGroups(
            entering.token_budget,
            entering.group_ids[:num_groups],
            entering.num_sequences[:num_groups],
            entering.sequence_ids[:num_sequences],
            entering.num_tokens[:num_sequences],
            entering.prefix_hashes[:num_sequences],
        )
        return replace(plan, entering=kept)

    def commit(self, random: Random, plan: Plan, grant: Grant) -> None:
        """The worker carries the step out; the scheduler takes note."""
        self.worker.carry_out(grant.changes)
        modes = dict(zip(grant.preempted_group_ids, grant.preempted_modes, strict=True))
        slots = dict(zip(plan.running.sequence_ids, plan.running.num_new_slots, strict=True))
        victims = [group for group in self.running if group.group_id in modes]
        for group in victims:
            self.running.remove(group)
            for member in group.members:
                slots.pop(member.sequence_id)
            if modes[group.group_id] is Preemption.SWAP:
                self.swapped.insert(0, group)
                continue
            self.waiting.insert(0, group)
            for member in group.members:
                member.num_slots = member.num_sealed = 0
        admitted = set(grant.admitted_group_ids)
        entered = [group for group in self.swapped + self.waiting if group.group_id in admitted]
        self.swapped = [group for group in self.swapped if group.group_id not in admitted]
        self.waiting = [group for group in self.waiting if group.group_id not in admitted]
        self.running += entered
        present = dict(zip(grant.admitted_sequence_ids, grant.num_present_tokens, strict=True))
        slots |= zip(grant.admitted_sequence_ids, grant.num_new_slots, strict=True)
        for group in list(self.running):
            for member in list(group.members):
                if member.sequence_id in present:
                    member.num_slots = present[member.sequence_id]
                    member.num_sealed = min(member.num_sealed, member.num_slots // self.block_size)
                self.compute(random, group, member, slots.get(member.sequence_id, 0))
        if not self.running and grant.refusal and plan.entering.token_budget:
            # What does not fit into an empty pool never will: a scheduler refuses it.
            group = (self.swapped + self.waiting)[0]
            for member in list(group.members):
                self.end(group, member)

    def compute(self, random: Random, group: Group, member: Sequence, num_new: int) -> None:
        """Writes KV that depends on every token up to its own; the last known token yields the next one."""
        for position in range(member.num_slots, member.num_slots + num_new):
            self.worker.write(member.sequence_id, position, tuple(member.tokens[: position + 1]))
        member.num_slots += num_new
        if member.num_slots == len(member.tokens):
            member.tokens.append(random.randint(0, 1))
        if len(member.tokens) > MAX_TOKENS:
            self.end(group, member)

    # --- What must not matter ---

    @rule()
    def repeat_the_step(self) -> None:
        if not self.step_id:
            return
        before = self.state.snapshot()
        assert self.state.stored_answer(self.step_id) == before.last_grant
        with pytest.raises(BrokenPromise, match="step_id"):
            self.state.apply(self.last_plan)
        assert self.state.snapshot() == before

    @rule(
        stranger=st.integers(10**6, 10**6 + 2), kind=st.sampled_from(["running", "released", "fork", "sealed", "twice"])
    )
    def break_a_promise(self, stranger: int, kind: str) -> None:
        before = self.state.snapshot()
        next_step = self.step_id + 1
        running = RunningGroups([1], [1], [Preemption.SWAP], [stranger], [1])
        with pytest.raises((BrokenPromise, MalformedPlan)):
            self.state.apply(
                {
                    "running": Plan(next_step, running=running),
                    "released": Plan(next_step, released=[stranger]),
                    "fork": Plan(next_step, forks=[Fork(stranger, 5)]),
                    "sealed": Plan(next_step, sealed=SealedBlocks([stranger], [0], [prefix_hash([])])),
                    "twice": Plan(
                        next_step, running=running, entering=EnteringGroups(1, [1], [2], [1, 1], [1, 1], [(), ()])
                    ),
                }[kind]
            )
        assert self.state.snapshot() == before

    @rule()
    def restart(self) -> None:
        """Snapshot and journal give back every field and the stored answer."""
        state = PoolState.restore(self.restart_from)
        for entry in self.journal:
            if isinstance(entry, Opening):
                state.open(entry)
            else:
                state.apply(entry)
        assert state.snapshot() == self.state.snapshot()
        self.state = state

    @rule()
    def write_a_snapshot(self) -> None:
        codec = StateCodec()
        snapshot = self.state.snapshot()
        self.restart_from = codec.decode_snapshot(codec.encode_snapshot(snapshot))
        assert self.restart_from == snapshot
        self.journal = []

    @rule()
    def the_scheduler_restarts(self) -> None:
        """Its sequences end, and what was in the middle of a plan with them. The prefix cache stays."""
        opening = replace(self.opening, forget_sequences=True)
        self.state.open(opening)
        self.journal.append(opening)
        for sequence_id in [*self.naive.tables, *self.naive.swapped]:
            self.naive.release(sequence_id)
        self.worker.tables = {}
        self.waiting, self.running, self.swapped = [], [], []
        self.forks, self.released, self.sealed = [], [], []
        assert self.state.space.num_sequences == 0

    # --- What always holds ---

    @invariant()
    def nothing_contradicts(self) -> None:
        if not hasattr(self, "state"):
            return
        space = self.state.space
        assert space.check() == []
        assert space.usage == self.naive.usage()
        assert space.free_blocks() == self.naive.free
        if not space.num_sequences:
            assert space.usage.num_used_device_blocks == space.usage.num_used_host_blocks == 0

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        for group in getattr(self, "running", ()):
            for member in group.members:
                if member.sequence_id in {fork.child_id for fork in self.forks}:
                    continue
                expected = [tuple(member.tokens[: position + 1]) for position in range(member.num_slots)]
                assert self.worker.read(member.sequence_id, member.num_slots) == expected
                assert self.state.space.num_slots_of(member.sequence_id) == member.num_slots
                assert list(self.state.space.blocks_of(member.sequence_id)) == self.worker.tables[member.sequence_id]


TestBlockSpace = BlockSpaceMachine.TestCase
