"""Sessions of an agent: transcripts in JSONL, which are canonical, and a catalogue of them in SQLite, which is derived.

store               `SessionStore`, the façade: find, start, append, read, delete
session_key, freshness
                    identity of a conversation; when a session is stale
entries, entry_json, branches
                    types of entries; an entry as a line and back; the branch that continues
transcript, transcript_paths, checkpoint
                    one file: append, repair, read from either end; its names and citation; resuming after growth
spoken, passage     what a line says, for the index and for people; reading a citation back
record, catalogue   what is known of a session without reading it; the only SQL of this package
kept_messages, session_removal
                    the cut of a compaction by hand; deleted transcripts
importers           conversations of other programs
"""
