"""The two kinds of failure that a user can act on; everything else is a bug and keeps its traceback."""

from __future__ import annotations


class LabError(Exception):
    """Bad input: the message says what, where, which value, and how to fix it. The process exits with 2."""

    exit_code = 2


class ServingFault(LabError):
    """The server does not run what was asked for, or not at all. The process exits with 3."""

    exit_code = 3


class Preempted(LabError):
    """The machine was asked back (SIGTERM) and the work is kept. The process exits with 75, sysexits' EX_TEMPFAIL."""

    exit_code = 75
