"""Carrying out what a model asks for."""

from __future__ import annotations

from kept.agent.equipment import AgentServices
from kept.llm.base import ToolUse
from kept.tools.toolbox import LeaveOut, ToolOutcome


def run_tool(equipment: AgentServices, use: ToolUse, leave_out: LeaveOut) -> ToolOutcome:
    """Whatever goes wrong in a tool is told to the model, which can do something about it."""
    offered = [spec.name for spec in equipment.tool_specs()]
    if use.name not in offered:
        return _failed(f"There is no tool '{use.name}'. There are: {', '.join(offered)}.")
    try:
        return equipment.toolbox.run(use.name, use.arguments, leave_out=leave_out)
    except Exception as exc:  # noqa: BLE001
        return _failed(f"{use.name} failed: {type(exc).__name__}: {exc}")


def _failed(message: str) -> ToolOutcome:
    return ToolOutcome(message, {"error": {"code": "tool_failed", "message": message, "hint": ""}}, is_error=True)
