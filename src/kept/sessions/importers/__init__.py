"""Conversations that other programs have kept, brought in with their own ids and times.

source      a file that is only ever read, record by record, whatever is in it
pi, openclaw, claude_code, codex
            one format each: records → drafts, pure
draft       a session in the making, and the count of what became of every kind of record
run         drafts → transcripts: whole or not at all, and nothing twice
report      what came of it
"""
