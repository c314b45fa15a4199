"""Lane."""
