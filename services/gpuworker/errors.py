"""The gpuworker's errors.

WorkerError
├── SettingsInvalid    a flag or variable is out of range            exit status 2
├── ModelUnreadable    a weights file is damaged or not supported    exit status 1
├── StepRefused        a step breaks a promise; nothing was changed  answered as StepFailure
└── LogitsNotFinite    sequences whose next token has no meaning     answered as StepFailure

KernelError
├── KernelInputError    an argument breaks the contract; nothing was written
└── KernelsUnavailable  the implementation asked for cannot be loaded
"""

from collections.abc import Sequence


class WorkerError(Exception):
    """Root of the tree."""


class SettingsInvalid(WorkerError):
    """Names the setting, its value and the limit."""


class ModelUnreadable(WorkerError):
    """Names the file, the field and its value."""


class StepRefused(WorkerError):
    """The step was refused whole, before anything was changed."""

    def __init__(self, message: str, *, epoch_is_stale: bool = False) -> None:
        super().__init__(message)
        self.epoch_is_stale = epoch_is_stale


class LogitsNotFinite(WorkerError):
    """Logits with NaN or infinity; ``row_indexes`` are rows of the logits, in ascending order."""

    def __init__(self, row_indexes: Sequence[int]) -> None:
        super().__init__(f"logits of rows {list(row_indexes)} are not finite")
        self.row_indexes = tuple(row_indexes)


class KernelError(Exception):
    """Root of the kernels' errors."""


class KernelInputError(KernelError, ValueError):
    """Names the argument, its value and the limit."""


class KernelsUnavailable(KernelError, RuntimeError):
    """Says what is missing and how to get it."""
