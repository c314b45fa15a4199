"""The experiment file: loading it, and planning what it asks for."""
