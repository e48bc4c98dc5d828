"""The kvmanager's errors.

KVManagerError
├── BrokenPromise           the caller contradicts what it was told before    gRPC FAILED_PRECONDITION
│   ├── StaleStep           a step id that is not the next one
│   └── PoolNotOpen         a plan before the pool was opened, or after another caller opened it
├── MalformedPlan           columns that do not fit together                  gRPC INVALID_ARGUMENT
├── UnknownToPool           no such pool, or no such sequence in it           gRPC NOT_FOUND
├── OutOfReach              a step that the journal does not reach           gRPC OUT_OF_RANGE
├── JournalUnavailable      Redis does not answer; nothing was acknowledged   gRPC UNAVAILABLE
├── PoolOwnedElsewhere      another kvmanager holds the lease of the pool     gRPC UNAVAILABLE
├── JournalCorrupt          what the journal holds cannot be replayed         gRPC DATA_LOSS
├── LeaseLost               nobody holds the lease any more                   internal: take it again
├── JournalBehind           the journal lost entries                          internal: write a snapshot
└── JournalAhead            the journal has entries of a later owner          internal: read them
"""


class KVManagerError(Exception):
    """Root of the tree."""


class BrokenPromise(KVManagerError):
    """The plan contradicts what the caller knows or should know. Nothing was changed."""


class StaleStep(BrokenPromise):
    """The step id is not the next one."""


class PoolNotOpen(BrokenPromise):
    """The stream has not opened the pool, or another stream has since."""


class MalformedPlan(KVManagerError):
    """The plan's columns do not fit together. Nothing was changed."""


class UnknownToPool(KVManagerError):
    """A question names a pool or a sequence that is not there."""


class OutOfReach(KVManagerError):
    """A question names a step that the journal has no more, or not yet."""


class JournalUnavailable(KVManagerError):
    """The journal did not take an entry in time. The step was not acknowledged; it may be sent again."""


class PoolOwnedElsewhere(KVManagerError):
    """Another kvmanager holds the lease of the pool."""


class JournalCorrupt(KVManagerError):
    """The journal's content cannot be replayed."""


class LeaseLost(KVManagerError):
    """The lease ran out, or the store lost it; nobody else holds it."""


class JournalBehind(KVManagerError):
    """The journal misses entries that it had acknowledged."""


class JournalAhead(KVManagerError):
    """The journal has entries that this owner did not write."""
