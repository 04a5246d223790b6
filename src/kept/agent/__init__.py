"""The agent: from inbound messages to a reply that is recorded.

``agent`` accepts messages (``events``), and ``turn`` answers them on the session's ``session_log``: gather memories,
call the model, run tools, record the reply. A conversation that outgrows the model's window goes through
``compaction``: facts are written to a note (``flush``), older messages are replaced by a summary. ``services`` are
shared by all of these.

answer                           one answer of the model as it arrives
approvals                        tool calls that wait for a person's decision
material                         workspace files, memories and notes of two days for a turn, and its request
extra_tools                      tools besides those of the memory: Python functions, MCP servers
context                          the request that a model gets, built from a transcript, files and memories; pure
tools                            the memory as tools for a model
"""
