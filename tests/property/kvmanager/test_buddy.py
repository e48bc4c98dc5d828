"""The buddy allocator against a map of who owns which block."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kvmanager.core.spaces.buddy import BuddyAllocator, Chunk


class Buddies(RuleBasedStateMachine):
    chunks = Bundle("chunks")

    @initialize(num_blocks=st.integers(1, 200))
    def begin(self, num_blocks):
        self.allocator = BuddyAllocator(num_blocks)
        self.beginning = self.allocator.free_chunks()
        self.held: set[Chunk] = set()

    @rule(target=chunks, num_blocks=st.integers(1, 64))
    def allocate(self, num_blocks):
        fitting = [chunk.num_blocks for chunk in self.allocator.free_chunks() if chunk.num_blocks >= num_blocks]
        chunk = self.allocator.allocate(num_blocks)
        assert (chunk is None) == (not fitting)
        if chunk is None:
            return None
        assert num_blocks <= chunk.num_blocks < 2 * num_blocks
        self.held.add(chunk)
        return chunk

    @rule(chunk=consumes(chunks))
    def free(self, chunk):
        if chunk is not None:
            self.held.remove(chunk)
            self.allocator.free(chunk)

    @invariant()
    def every_block_is_in_one_chunk(self):
        parts = [*self.held, *self.allocator.free_chunks()]
        blocks = [block for chunk in parts for block in range(chunk.start, chunk.start + chunk.num_blocks)]
        assert sorted(blocks) == list(range(self.allocator.num_blocks))
        assert all(chunk.start % chunk.num_blocks == 0 for chunk in parts)
        assert sum(chunk.num_blocks for chunk in self.allocator.free_chunks()) == self.allocator.num_free_blocks

    @invariant()
    def free_buddies_have_merged(self):
        free = set(self.allocator.free_chunks())
        whole = set(self.beginning)
        for chunk in free - whole:
            assert Chunk(chunk.start ^ chunk.num_blocks, chunk.order) not in free

    def teardown(self):
        if hasattr(self, "allocator"):
            for chunk in self.held:
                self.allocator.free(chunk)
            assert self.allocator.free_chunks() == self.beginning


Buddies.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBuddies = Buddies.TestCase
