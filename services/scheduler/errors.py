"""The scheduler's errors.

SchedulerError
├── InvalidConfiguration  a setting or the model's files are unusable at start: exit code 2
├── RequestRefused      the request is at fault                      HTTP 400
├── NotFound            what was asked for is not there              HTTP 404
├── Conflict            what was asked for cannot be done now        HTTP 409
├── QueueFull           too many requests wait                       HTTP 429
├── QueueTimeout        a request waited too long                    HTTP 504
├── NotReady            tokens cannot advance, or it is draining     HTTP 503
├── RequestFailed       an accepted request cannot be finished       HTTP 500
├── MemoryUnavailable   the kvmanager does not answer                internal: reconnect
├── WorkerUnavailable   the gpuworker does not answer                internal: reconnect
└── StepRefused         a service found a broken promise in a step   internal: forget and recompute
"""


class SchedulerError(Exception):
    """Root of the tree."""


class InvalidConfiguration(SchedulerError):
    """Names the flag or file, its value and what is accepted."""


class RequestRefused(SchedulerError):
    """Names the field (``param``), its value and the limit in ``message``; ``code`` is for programs."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class NotFound(SchedulerError):
    """Names what is not there."""


class Conflict(SchedulerError):
    """Says what is in the way; ``code`` is for programs."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class QueueFull(SchedulerError):
    """Try again after ``retry_after_s`` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueTimeout(SchedulerError):
    """Names the deadline that passed before the first token."""


class NotReady(SchedulerError):
    """Says what is waited for."""


class RequestFailed(SchedulerError):
    """An accepted request ended by a fault of the system."""


class MemoryUnavailable(SchedulerError):
    """The kvmanager's stream broke."""


class WorkerUnavailable(SchedulerError):
    """A gpuworker's stream broke."""


class StepRefused(SchedulerError):
    """A step gave nothing, and repeating it would not help.

    The kvmanager or a gpuworker holds another view of the sequences than the scheduler, or ``sequence_ids`` names
    those whose next token cannot be computed.
    """

    def __init__(self, message: str, sequence_ids: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.sequence_ids = sequence_ids
