"""The agent: runs one launch on the node by itself. Standard library only, Python >= 3.9."""
