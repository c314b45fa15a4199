"""Programs that run in an engine's own Python on the node, which alone knows what it would do.

They travel in the agent's archive: standard library, Python >= 3.9, and whatever the engine has.
"""
