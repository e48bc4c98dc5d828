"""Workers' costs against what others measured, and their memory."""

import pytest

from octavo.cluster_simulation.servers import ServerName, cost_of, num_kv_slots
from octavo.simulation.cost import StepShape

# Llama-2-70B on 8 A100-80GB, medians in seconds of splitwise-sim's data/perf_model.csv (MIT, (c) 2024 Pratyush Patel).
PROMPT_S = {512: 0.0928, 1024: 0.1545, 2048: 0.2742}
STEP_S = {1: 0.0449, 16: 0.0504, 64: 0.0716}  # by sequences of 512 prompt tokens


def cost():
    return cost_of(ServerName.LLAMA2_70B)


@pytest.mark.parametrize("num_tokens", PROMPT_S)
def test_prompts_take_what_splitwise_measured(num_tokens):
    step = StepShape(num_tokens, 1, 1, 0, num_attended_pairs=num_tokens**2 // 2)
    assert cost().step_s(step) == pytest.approx(PROMPT_S[num_tokens], rel=0.15)


@pytest.mark.parametrize("num_sequences", STEP_S)
def test_decode_steps_take_what_splitwise_measured(num_sequences):
    step = StepShape(num_sequences, num_sequences, 0, 576 * num_sequences)
    assert cost().step_s(step) == pytest.approx(STEP_S[num_sequences], rel=0.15)


def test_the_kv_of_a_million_tokens_fits_beside_70b_weights_on_eight_gpus():
    assert num_kv_slots(ServerName.LLAMA2_70B) == (0.9 * 640e9 - 138e9) // 327_680
    assert num_kv_slots(ServerName.LLAMA31_8B) == (0.9 * 80e9 - 16.06e9) // 131_072
