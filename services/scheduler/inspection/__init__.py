"""What an administrator may look at and do, in the scheduler's own words. The REST API answers with these values.

Hashes are hexadecimal. ``step_id`` says as of which step an answer is.
"""

from scheduler.inspection.audits import Audit, Finding
from scheduler.inspection.blocks import (
    Block,
    BlockPage,
    BlockQuery,
    PrefixNode,
    PrefixPage,
    SequenceTable,
    Sharing,
    StateName,
    TableEntry,
    Tables,
    TierName,
)
from scheduler.inspection.pins import CacheReset, Pin, PinList, Pinned, Unpinned
from scheduler.inspection.pools import Pool, PoolCounters, PoolList, PoolMap
from scheduler.inspection.ports import Administrator, PoolInspector, WorkerInspector
from scheduler.inspection.requests import LiveRequest, LiveSequence, RequestList
from scheduler.inspection.steps import PreemptedGroup, PreemptionName, Replay, StepList, StepRecord

__all__ = [
    "Administrator",
    "Audit",
    "Block",
    "BlockPage",
    "BlockQuery",
    "CacheReset",
    "Finding",
    "LiveRequest",
    "LiveSequence",
    "Pin",
    "PinList",
    "Pinned",
    "Pool",
    "PoolCounters",
    "PoolInspector",
    "PoolList",
    "PoolMap",
    "PreemptedGroup",
    "PreemptionName",
    "PrefixNode",
    "PrefixPage",
    "Replay",
    "RequestList",
    "SequenceTable",
    "Sharing",
    "StateName",
    "StepList",
    "StepRecord",
    "TableEntry",
    "Tables",
    "TierName",
    "Unpinned",
    "WorkerInspector",
]
