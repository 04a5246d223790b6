"""Where things are in this repository."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kept"
NODE_PROGRAMS = ROOT / "tests" / "node" / "node_modules" / ".bin"
"""Claude Code, the MCP inspector and qmd, installed by the Makefile. Tests that run them have the marker `node`."""
NODE_PATH = f"{NODE_PROGRAMS}{os.pathsep}{Path(sys.executable).parent}"
"""What PATH has to begin with for them: they find `node` in the virtual environment."""
