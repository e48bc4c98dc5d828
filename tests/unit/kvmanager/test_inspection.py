"""Questions tell the truth and leave no trace."""

from itertools import islice

import pytest

from doubles.memory_rig import SWAP, Entering, MemoryRig, Running, chain
from kvmanager.core.comparison import differences
from kvmanager.core.inspection import (
    BlockQuery,
    BlockState,
    Tier,
    blocks_page,
    chain_rows,
    draw_map,
    find_holders,
    map_source,
    prefixes_page,
    sequence_view,
    sequence_views,
)
from kvmanager.core.pool_state import PoolStateSnapshot

HEAD, TAIL, OTHER = *chain("a", "b"), chain("a", "c")[1]


@pytest.fixture
def busy() -> MemoryRig:
    """Sequences 1 and 2 share a full block; 1 goes on alone; 3 is swapped; one chain is cached and pinned."""
    rig = MemoryRig(16, 8)
    rig.prompt(9, 8, [HEAD, TAIL])
    rig.step(released=[9])
    rig.space.pin(HEAD, 0)
    rig.prompt(1, 6, [HEAD])
    rig.prompt(2, 7, [HEAD])
    rig.step(entering=[Entering(3, {3: 5})])
    rig.step(running=[Running(1, {1: 48}), Running(3, {3: 4}, SWAP)])
    assert rig.space.host.tables
    return rig


def rows(rig, **query):
    page = blocks_page(rig.space, BlockQuery(**query))
    list(find_holders(page))
    return page.rows


def test_no_question_changes_anything(busy):
    before = busy.space.snapshot()
    for tier in Tier:
        for state in [None, *BlockState]:
            rows(busy, tier=tier, state=state)
        list(draw_map(map_source(busy.space, tier, 3)))
    chain_rows(busy.space, TAIL)
    prefixes_page(busy.space, 0, 100)
    sequence_views(busy.space)
    sequence_view(busy.space, 1)
    busy.space.check()
    assert busy.space.snapshot() == before


def test_a_shared_block_names_its_holders_and_a_pin_is_none(busy):
    (row,) = rows(busy, state=BlockState.SHARED)
    assert row.holders == [1, 2]
    assert row.num_references == 2
    assert row.prefix_hash == HEAD
    assert row.parent_hash is None
    assert row.is_pinned
    assert row.num_filled_slots == 4


def test_states_are_told_apart(busy):
    ids = {state: {row.block_id for row in rows(busy, state=state)} for state in BlockState}
    everything = {row.block_id for row in rows(busy)}
    assert ids[BlockState.SHARED] <= ids[BlockState.USED]
    assert ids[BlockState.USED] | ids[BlockState.CACHED] | ids[BlockState.FREE] == everything == set(range(16))
    assert len(ids[BlockState.USED]) == busy.num_used
    assert len(ids[BlockState.CACHED]) == busy.num_cached
    assert len(ids[BlockState.PINNED]) == 1


def test_a_partly_filled_block_says_how_far(busy):
    last = busy.blocks(2)[-1]
    assert next(row for row in rows(busy, holder=2) if row.block_id == last).num_filled_slots == 3


def test_a_holders_blocks_are_those_of_its_table(busy):
    assert [row.block_id for row in rows(busy, holder=1)] == sorted(busy.blocks(1))
    assert [row.holders for row in rows(busy, tier=Tier.HOST, holder=3)] == [[3], [3]]


def test_pages_join_without_gap_or_repeat(busy):
    seen, start = [], 0
    while True:
        page = blocks_page(busy.space, BlockQuery(start=start, page_size=3))
        seen += [row.block_id for row in page.rows]
        start = page.next_block_id
        if not start:
            break
    assert seen == list(range(16))


def test_one_question_looks_at_a_bounded_number_of_blocks():
    rig = MemoryRig(10_000, 0)
    page = blocks_page(rig.space, BlockQuery(state=BlockState.USED))
    assert (page.rows, page.next_block_id) == ([], 4096)
    assert prefixes_page(rig.space, 8192, 10) == ([], 0)


def test_the_prefix_tree_has_parents(busy):
    found, following = prefixes_page(busy.space, 0, 100)
    assert following == 0
    assert {(row.prefix_hash, row.parent_hash) for row in found} >= {(HEAD, None), (TAIL, HEAD)}
    assert [row.prefix_hash for row in chain_rows(busy.space, TAIL)] == [HEAD, TAIL]
    assert chain_rows(busy.space, OTHER) == []


def test_parents_survive_swapping(rig):
    rig.prompt(1, 9, [HEAD, TAIL])
    rig.prompt(2, 17)
    rig.step(running=[Running(2, {2: 4}), Running(1, {1: 1}, SWAP)])
    assert rig.space.host.tables
    rig.step(released=[2])
    rig.prompt(3, 32)  # evicts what the device had
    rig.step(released=[3])
    rig.step(entering=[Entering(1, {1: 10})])
    assert [row.parent_hash for row in chain_rows(rig.space, TAIL)] == [None, HEAD]


def test_a_sequence_is_found_on_whichever_tier_it_is(busy):
    device, host = sequence_view(busy.space, 1), sequence_view(busy.space, 3)
    assert (device.tier, list(device.block_ids)) == (Tier.DEVICE, busy.blocks(1))
    assert device.num_references[0] == 2
    assert device.hashes[0] == HEAD
    assert (host.tier, host.num_slots) == (Tier.HOST, 5)
    assert sequence_view(busy.space, 77) is None


def test_the_map_counts_every_block_once(busy):
    drawn = next(result for result in draw_map(map_source(busy.space, Tier.DEVICE, 5)) if result)
    assert (drawn.blocks_per_cell, drawn.num_blocks) == (4, 16)
    assert sum(drawn.num_used) == busy.num_used
    assert sum(drawn.num_cached) == busy.num_cached
    assert (sum(drawn.num_shared), sum(drawn.num_pinned)) == (1, 1)


def test_long_work_is_done_in_pieces():
    rig = MemoryRig(100_000, 0)
    pieces = list(islice(draw_map(map_source(rig.space, Tier.DEVICE, 64)), 1000))
    assert len(pieces) > 4
    assert sum(piece is not None for piece in pieces) == 1


def test_why_a_group_gave_way_is_said_with_numbers(rig):
    rig.prompt(1, 16)
    rig.prompt(2, 16)
    grant = rig.step(running=[Running(1, {1: 1}), Running(2, {2: 1}, SWAP)])
    assert grant.preempted_group_ids == [2]
    assert rig.space.last_trace.preempted_reasons == ["group 1 needs 1 blocks and 0 are free"]


def test_a_swap_that_the_host_has_no_room_for_says_so():
    rig = MemoryRig(8, 1)
    rig.prompt(1, 16)
    rig.prompt(2, 16)
    rig.step(running=[Running(1, {1: 1}), Running(2, {2: 1}, SWAP)])
    assert "dropped instead of swapped: 1 host blocks are free" in rig.space.last_trace.preempted_reasons[0]
    assert rig.space.last_trace.num_swaps_refused == 1


def test_differing_fields_are_named(busy):
    ours = PoolStateSnapshot(1, busy.space.snapshot(), None, None)
    assert differences(ours, ours) == []
    theirs = PoolStateSnapshot(2, MemoryRig(16, 8).space.snapshot(), None, None)
    found = "\n".join(differences(ours, theirs))
    for part in ("epoch is 2, not 1", "counts is", "hash is", "sequence 1: none, not", "blocks are free", "pins"):
        assert part in found, found
