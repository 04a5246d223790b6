"""Import of conversations from other programs, with their own ids and times. In the order that data passes through:

source              reads a file record by record, or an export, whatever is in it, and reports what it cannot read
coding_agents       Claude Code, Codex: records → drafts
openclaw            OpenClaw, pi: records → drafts
chat_services       ChatGPT, Claude.ai: conversations → drafts
draft               builds a session entry by entry
import_run          finds the files, reads and writes each conversation, none twice, and collects the report
"""
