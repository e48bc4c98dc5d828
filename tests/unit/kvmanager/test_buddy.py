"""The allocator of the paper's baselines: chunks of powers of two."""

import pytest

from kvmanager.core.spaces.buddy import BuddyAllocator, Chunk, order_for


@pytest.mark.parametrize(("num_blocks", "order"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7), (129, 8)])
def test_a_request_is_rounded_up_to_a_power_of_two(num_blocks, order):
    assert order_for(num_blocks) == order


def test_a_larger_chunk_is_split_until_it_fits():
    allocator = BuddyAllocator(16)
    assert allocator.allocate(3) == Chunk(0, 2)
    assert allocator.free_chunks() == [Chunk(4, 2), Chunk(8, 3)]


def test_the_smallest_chunk_that_fits_is_taken():
    allocator = BuddyAllocator(16)
    first = allocator.allocate(2)
    allocator.allocate(2)
    allocator.free(first)
    assert allocator.allocate(1) == Chunk(0, 0), "split from the free chunk of 2, not from those of 4 or 8"


def test_both_halves_merge_when_they_are_free():
    allocator = BuddyAllocator(16)
    chunks = [allocator.allocate(1) for _ in range(16)]
    for chunk in chunks:
        allocator.free(chunk)
    assert allocator.free_chunks() == [Chunk(0, 4)]


def test_neighbours_that_are_no_buddies_do_not_merge():
    allocator = BuddyAllocator(8)
    chunks = [allocator.allocate(2) for _ in range(4)]
    allocator.free(chunks[1])
    allocator.free(chunks[2])
    assert allocator.free_chunks() == [Chunk(2, 1), Chunk(4, 1)]
    assert allocator.allocate(4) is None


def test_a_pool_that_is_no_power_of_two_is_a_sum_of_some():
    assert [chunk.num_blocks for chunk in BuddyAllocator(981).free_chunks()] == [512, 256, 128, 64, 16, 4, 1]


def test_nothing_is_handed_out_where_nothing_fits():
    allocator = BuddyAllocator(981)
    assert allocator.allocate(513) is None
    assert allocator.num_free_blocks == 981


@pytest.mark.parametrize("num_blocks", [0, -1])
def test_a_chunk_of_nothing_is_refused(num_blocks):
    with pytest.raises(ValueError, match=f"num_blocks is {num_blocks}, but must be at least 1"):
        BuddyAllocator(4).allocate(num_blocks)
