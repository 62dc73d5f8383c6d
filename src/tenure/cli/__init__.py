"""The command line: parse, build the settings, call one function. One file a noun.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage or settings, 3 service or database unreachable, 4 not found,
5 the job's state or version does not allow it, 130 interrupted.
"""

from tenure.cli.app import main

__all__ = ["main"]
