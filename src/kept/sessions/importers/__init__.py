"""Import of conversations from other programs, with their own ids and times. In the order that data passes through:

source              reads a file record by record, whatever is in it, and reports what it cannot read
openclaw_sqlite     the same for OpenClaw's database
pi, openclaw, claude_code, codex
                    one format each: records → drafts, pure
draft               builds a session entry by entry, and counts what became of every kind of record
import_run          drafts → transcripts: each completely or not, and none twice
report              result of an import
"""
