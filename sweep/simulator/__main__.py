"""`python -m sweep.simulator`: the simulated server, for a look by hand."""

from sweep.simulator.main import main

main()
