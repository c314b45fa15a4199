"""The sweep directory: its database, its lock, its files."""
