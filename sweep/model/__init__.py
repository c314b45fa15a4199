"""Values that the whole program shares: frozen, without I/O."""
