"""Run a command that must not outlive its parent: ``leash.py PARENT_PID COMMAND…``.

The kernel ends the process when its parent ends, however that happens. The request survives ``exec``, so it is made
here, between fork and exec, by a program of its own: code that runs in a forked child of a threaded parent is unsafe.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, then become the command."""
    parent_pid = int(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:  # it ended before the request was made
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606


if __name__ == "__main__":
    main()
