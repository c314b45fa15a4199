"""`python -m sweep.agent VERB ...`."""

from sweep.agent.main import main

main()
