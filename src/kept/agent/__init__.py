"""The agent: from inbound messages to a reply that is recorded.

``agent`` accepts messages (``events``) and runs a turn on the session's ``session_log``: gather memories, call the
model, run tools, record the reply. A conversation that outgrows the model's window goes through ``compaction``: facts
are written to a note (``flush``), older messages are replaced by a summary. ``services`` are shared by all of these.
"""
