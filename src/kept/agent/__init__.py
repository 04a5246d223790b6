"""The agent: from inbound messages to a reply that is recorded.

``agent`` accepts messages (``events``, with the calls that wait for a person), and ``turn`` answers them on the
session's ``session_log``: gather memories, call the model, run tools, record the reply. A conversation that outgrows
the model's window goes through ``compaction``: facts are written to a note (``flush``), older messages are replaced by
a summary.

answer          answers of the model: one as it arrives, and those to calls outside of a reply
material        workspace files, memories and notes of two days for a turn, and its request
context         the request that a model gets, within a budget, built from a conversation, files and memories; pure
fence           marks text from others as data; pure
recent_context  what another agent gets at the start of a session
extra_tools     tools besides those of the memory: Python functions, MCP servers
tools           the memory as tools for a model
"""
