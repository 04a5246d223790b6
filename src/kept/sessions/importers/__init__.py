"""Import of conversations from other programs, with their own ids and times. In the order that data passes through:

import_run          finds the files, reads and writes each conversation, none twice, and collects the report
reader              what every reader of a format declares: its files, where a session begins, what a record says
coding_agents       Claude Code, Codex
openclaw            OpenClaw, pi
chat_services       ChatGPT, Claude.ai
source              reads a file record by record, or an export, whatever is in it, and reports what it cannot read
draft               builds a session entry by entry
"""
