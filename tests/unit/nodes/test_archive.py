"""The agent's archive."""

from __future__ import annotations

import hashlib
import io
import zipfile

from sweep.nodes.archive import agent_archive


def test_the_same_sources_give_the_same_bytes() -> None:
    """Its name is a hash of its bytes, so a node needs it once."""
    name, data = agent_archive()
    assert agent_archive() == (name, data)
    assert name == f"agent-{hashlib.sha256(data).hexdigest()[:12]}.pyz"


def test_it_holds_what_runs_on_a_node_and_nothing_else() -> None:
    """Nothing of the controller travels to the node."""
    names = zipfile.ZipFile(io.BytesIO(agent_archive()[1])).namelist()
    assert {"__main__.py", "sweep/__init__.py", "sweep/agent/wire.py"} <= set(names)
    assert {"sweep/simulator/main.py", "sweep/simulator/reference.json"} <= set(names)
    assert {"sweep/probe/sitecustomize.py", "sweep/probe/arming.py"} <= set(names)
    deep = [name for name in names if name.count("/") > 1]
    shipped = ("sweep/agent/", "sweep/inside/", "sweep/probe/", "sweep/simulator/")
    assert "sweep/inside/sglang.py" in deep
    assert all(name.startswith(shipped) for name in deep)
    assert [name for name in names if name.count("/") == 1] == ["sweep/__init__.py"]
