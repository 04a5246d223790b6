"""Import of conversations from other programs, with their own ids and times. In the order that data passes through:

program_folders     where other programs keep their conversations, and exports among the downloads
foreign_format      the formats, and which of them a file looks like
source              reads a file record by record, whatever is in it, and reports what it cannot read
openclaw_sqlite     the same for OpenClaw's database
json_array, export_file
                    the same for exports of chat services: JSON of any size, in a zip file or a folder
pi, openclaw, claude_code, codex
                    one format each: records → drafts, pure
message_tree, chatgpt, claude_ai
                    one chat service each: conversations → drafts, pure
draft               builds a session entry by entry, and counts what became of every kind of record
draft_writer        drafts → transcripts: each completely or not, and none twice
import_run          finds the files, reads and writes each conversation, and collects the report
report              result of an import
"""
