"""Where things are in this repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kept"
NODE_PROGRAMS = ROOT / "tests" / "node" / "node_modules" / ".bin"
"""Claude Code, the MCP inspector and qmd, installed by the Makefile. Tests that run them have the marker `node`."""
