"""Facts of a node, one group a module, for the checks before a sweep; `inspection` asks them all.

Nothing here judges: what is missing or cannot be told is null, and the controller says what
follows from it.
"""
