"""On PYTHONPATH of the sweep tests' processes: a `plan` verb that does what the point's `target.name` says."""

import os
import signal
import sys
import time
import types
from pathlib import Path


def run(config, out):
    from eagle_lab.config.errors import LabError, ServingFault

    with (out / "runs").open("a") as f:
        f.write("run\n")
    mended = (Path(config.paths.outputs) / "mended").exists()
    if config.target.name == "fault" and not mended:
        raise ServingFault("the server is down. Start it.")
    if config.target.name == "input" and not mended:
        raise LabError("no such thing.")
    if config.target.name == "bug" and not mended:
        raise ZeroDivisionError("a bug")
    if config.target.name == "three" and not mended:
        return 3
    if config.target.name == "killed" and not mended:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.target.name == "slow" and not mended:
        (out / "started").write_text(str(os.getpid()))
        try:
            time.sleep(120)
        except KeyboardInterrupt:
            # as Lightning does
            raise SystemExit(1) from None
        finally:
            # a server that takes a moment to stop
            time.sleep(0.5)
            (out / "cleaned").touch()
    (out / "result").write_text(config.target.name)
    return 0


plan = types.ModuleType("eagle_lab.cli.plan")
plan.run = run
sys.modules["eagle_lab.cli.plan"] = plan
