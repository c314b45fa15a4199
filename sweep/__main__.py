"""`python -m sweep` is the command `sweep`."""

from sweep.cli import main

main()
