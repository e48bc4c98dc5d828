"""The paper's figures, each by a function of how much effort it may take."""

from collections.abc import Callable

from octavo.simulation.experiments import Effort
from octavo.simulation.figures import blocks, latency, memory, sharing
from octavo.simulation.report import Report

FIGURES: dict[str, Callable[[Effort], Report]] = {
    "2": memory.waste,
    "12": latency.basic_sampling,
    "13": memory.batched_requests,
    "14": sharing.several_sequences,
    "15": sharing.memory_saved,
    "16": latency.shared_prefix,
    "17": latency.chatbot,
    "18b": blocks.block_sizes,
    "19": blocks.swap_or_recompute,
}
"""By the number in the paper."""
