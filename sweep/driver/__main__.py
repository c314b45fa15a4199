"""`python -m sweep.driver DIRECTORY LOCK_DESCRIPTOR [--keep-going]`, started by submit and resume.

The lock on the sweep directory was taken by the starting process and is inherited, so that there
is no moment at which another driver could take it.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from sweep.driver.process import drive
from sweep.store.directory import SweepLock


def main(arguments: list[str]) -> int:
    """Drive one sweep; an unexpected error is in driver.log with its traceback."""
    environment = dict(os.environ)
    directory, descriptor, *flags = arguments
    os.set_inheritable(int(descriptor), False)
    try:
        return drive(
            Path(directory),
            SweepLock(int(descriptor)),
            environment,
            keep_going="--keep-going" in flags,
        )
    except Exception:  # noqa: BLE001 - the last resort of a process that nobody watches
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
