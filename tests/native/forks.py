"""Children of a fork in tests."""

import os
import signal
import time


def wait_for(child, patience_s):
    """The exit code of a child, or "hangs": it is killed then."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found == child:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"
