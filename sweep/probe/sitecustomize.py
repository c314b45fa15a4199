"""Imported by Python at its start, from the directory that sweep put on PYTHONPATH.

Another sitecustomize that stands behind it on the path is executed as if this one were not there.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _arm() -> None:
    try:
        from eagle3_probe.arming import arm  # noqa: PLC0415 - only where it is active
    except Exception as problem:  # noqa: BLE001 - the server must not notice
        sys.stderr.write("eagle3_probe: cannot be imported: %s\n" % problem)
    else:
        arm()


def _go_on() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    behind = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _go_on()  # first, so that whatever it puts in front of the imports is behind ours
finally:
    if os.environ.get("EAGLE3_PROFILE") == "1":
        _arm()
