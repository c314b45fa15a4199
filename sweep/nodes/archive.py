"""The agent as one file, to be put on a node: the same bytes for the same sources.

The simulated server travels in it, and so do the programs that ask an engine from the inside, and
the probe, which the agent puts into servers: whoever has the agent can rehearse.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import sweep

_SHIPPED = ("agent", "inside", "probe", "simulator")
_TIME = (2020, 1, 1, 0, 0, 0)
_MAIN = b"from sweep.agent.main import main\n\nmain()\n"


def agent_archive() -> tuple[str, bytes]:
    """Return the name and the bytes of the agent's .pyz; the name holds a hash of the bytes."""
    root = Path(sweep.__file__).parent
    shipped = [path for name in _SHIPPED for path in (root / name).rglob("*.py")]
    sources = [root / "__init__.py", *shipped, root / "simulator" / "reference.json"]
    entries = {f"sweep/{path.relative_to(root).as_posix()}": path.read_bytes() for path in sources}
    entries["__main__.py"] = _MAIN
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(entries.items()):
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    return f"agent-{hashlib.sha256(data).hexdigest()[:12]}.pyz", data
