"""The roofline: what each part of a step adds."""

from dataclasses import fields, replace

import pytest

from octavo.simulation.cost import CostModel, StepShape
from octavo.simulation.machines import Server, contiguous_cost, machine, paged_cost, read_amplification, static_cost

NOTHING = CostModel(**dict.fromkeys((field.name for field in fields(CostModel)), 0.0))
STEP = StepShape(
    num_tokens=3,
    num_requests=5,
    num_prompts=7,
    num_context_tokens=11,
    num_shared_tokens=23,
    num_attended_pairs=13,
    num_swapped_blocks=17,
    num_copied_blocks=19,
)


@pytest.mark.parametrize(
    ("constant", "count"),
    [
        ("weights_s", 1),
        ("token_s", 3),
        ("overhead_s", 1),
        ("request_s", 5),
        ("prompt_s", 7),
        ("kv_token_s", 11),
        ("shared_kv_token_s", 23),
        ("pair_s", 13),
        ("swap_block_s", 17),
        ("copy_block_s", 19),
        ("all_reduce_s", 1),
        ("all_reduce_token_s", 3),
    ],
)
def test_each_constant_counts_as_often_as_its_part_occurs(constant, count):
    assert replace(NOTHING, **{constant: 2.0}).step_s(STEP) == 2.0 * count


def test_weights_and_products_overlap_in_part():
    cost = replace(NOTHING, weights_s=4.0, token_s=1.0)
    assert cost.step_s(STEP) == 5.0, "√(4² + 3²)"


@pytest.mark.parametrize("server", list(Server))
def test_the_kv_of_a_server_is_what_table_1_of_the_paper_says(server):
    kv_gib = {Server.OPT_13B: 12, Server.OPT_66B: 21, Server.OPT_175B: 264}
    this = machine(server)
    assert this.num_kv_slots * this.kv_bytes / 2**30 == pytest.approx(kv_gib[server], rel=0.02)


def test_only_servers_of_several_gpus_reduce():
    assert paged_cost(Server.OPT_13B, 16).all_reduce_s == 0.0
    assert paged_cost(Server.OPT_66B, 16).all_reduce_s > 0.0


def test_the_kernel_of_the_paper_is_slower_through_block_tables_by_what_figure_18_says():
    paged, contiguous = paged_cost(Server.OPT_13B, 16), contiguous_cost(Server.OPT_13B, 16)
    assert 1.20 <= paged.kv_token_s / contiguous.kv_token_s <= 1.26


def test_fastertransformer_pays_for_no_python():
    cost = static_cost(Server.OPT_13B, 16)
    assert (cost.overhead_s, cost.request_s, cost.prompt_s) == (0.0, 0.0, 0.0)


def test_small_blocks_waste_parts_of_each_sector_that_is_read():
    assert [read_amplification(size) for size in (1, 2, 4, 8, 16, 256)] == [9.0, 4.5, 2.5, 1.5, 1.0, 1.0]


def test_a_shared_slot_is_read_again_from_the_cache_of_the_gpu():
    cost = paged_cost(Server.OPT_13B, 16)
    assert 0.1 < cost.shared_kv_token_s / cost.kv_token_s < 0.3
