"""Whose token stands where in a step's result."""

from collections.abc import Iterable, Mapping

from scheduler.core.request import GroupId, SequenceId
from scheduler.core.scoring import cut_tops
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import OutOfStepError, StepResult, Top


def tops_of(result: StepResult, rows: Iterable[int]) -> list[Top]:
    """The most probable tokens in each of the rows; empty if nobody asked."""
    if not result.num_top:
        return []
    tops = cut_tops(result.num_top, result.top_token_ids, result.top_logprobs)
    return [tops[row] for row in rows]


def sampled_rows(
    result: StepResult, samplers: Iterable[Sequence], groups: Mapping[GroupId, SequenceGroup]
) -> list[tuple[Sequence, int]]:
    """The live sequences that get a token, each with its row of ``result``; rows of strangers are left out.

    A trunk has one row for each choice of its group, by choice index.

    Raises:
        OutOfStepError: A token is missing.

    """
    ids = result.sequence_ids
    first_rows = dict(zip(reversed(ids), range(len(ids) - 1, -1, -1), strict=True))
    sampled: list[tuple[Sequence, int]] = []
    missing: list[SequenceId] = []
    for sequence in samplers:
        if sequence.finish_reason is not None:
            continue
        row = first_rows.get(sequence.sequence_id)
        if row is None:
            missing.append(sequence.sequence_id)
        elif sequence.num_branches == 1:
            sampled.append((sequence, row))
        elif len(ids) < (end := row + sequence.num_branches) or ids[end - 1] != sequence.sequence_id:
            missing.append(sequence.sequence_id)
        else:
            siblings = groups[sequence.group_id].live_sequences
            sampled += [(sibling, row + sibling.choice_index) for sibling in siblings]
    if missing:
        raise OutOfStepError(f"result {result.step_id} has no token for sequences {missing}")
    return sampled
