"""The probe: phase timings of every decode cycle inside an unmodified SGLang server.

Shipped to the node in the agent's archive and laid out there as a directory on the server's
PYTHONPATH, where this package is named eagle3_probe. Standard library only, Python >= 3.9.
"""
