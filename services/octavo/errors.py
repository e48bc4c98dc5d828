"""The command line's errors; each message is shown to the user as it stands.

OctavoError
├── ModelUnavailable   the model is not on disk and could not be fetched
├── AddressInUse       another program listens where the API should
├── AlreadyRunning     a cluster runs on this data folder
├── NotRunning         no cluster runs on this data folder
├── FolderUnusable     the data folder cannot be made or written
├── ServiceFailed      a service ended, or did not become ready
├── CompletionFailed   the API answered a completion with an error
├── AdminRefused       the admin API answered with an error, or not at all
├── KeysUnusable       the file of keys cannot be read or changed as asked
├── MetricsUnavailable a server has no page of metrics
├── WorkloadInvalid    a workload of the memory simulator is none
└── BenchFailed        a server could not be measured as asked
"""


class OctavoError(Exception):
    """Root of the tree."""


class ModelUnavailable(OctavoError):
    """Says what was tried."""


class AddressInUse(OctavoError):
    """Names host and port."""


class AlreadyRunning(OctavoError):
    """Names the folder and the process that holds it."""


class NotRunning(OctavoError):
    """Names the folder."""


class FolderUnusable(OctavoError):
    """Names the path and what the system said."""


class ServiceFailed(OctavoError):
    """Names the service, how it ended and how its log ends."""


class CompletionFailed(OctavoError):
    """Carries the API's own message."""


class AdminRefused(OctavoError):
    """Carries the API's own message."""


class KeysUnusable(OctavoError):
    """Names the file and what is wrong with it; never a key."""


class BenchFailed(OctavoError):
    """Names the option or the server, and what is wrong."""


class PlottingUnavailable(OctavoError):
    """Names the extra that brings it."""


class TraceUnusable(OctavoError):
    """Names what does not fit."""


class MetricsUnavailable(OctavoError):
    """Names the server and what it answered."""


class WorkloadInvalid(OctavoError):
    """Says which file or field of a workload is wrong, its value and the limit."""
