"""Verbs: parse, call the application, print, exit code. Nothing else."""


def main() -> None:
    """Run a verb."""
