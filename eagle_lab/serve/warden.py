"""Runs a command and takes the whole process group down when the process that asked for it is gone.

`python warden.py PARENT_PID COMMAND...`, started as the leader of a new session. A parent that is killed with SIGKILL
can stop nothing; SGLang's children watch only their own parent, and only once they have been imported. The kernel's
parent-death signal is bound to the thread that started a process, so this polls instead. Standard library only: it
starts in 20 ms and stays at 8 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

POLL_S = 0.2


def main() -> int:
    parent = int(sys.argv[1])
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while child.poll() is None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        time.sleep(POLL_S)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main())
