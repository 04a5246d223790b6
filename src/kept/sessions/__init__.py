"""Sessions of an agent: transcripts, which are logs in its storage, and a catalogue in SQLite, which is derived.

store               `SessionStore`: find, start, append, read, delete, restore
session_key         identity of a conversation
entries             types of entries; an entry as a line and back
transcript, transcript_paths
                    one log: read it from either end, resume after growth; its names and citation
spoken              what a line says, for the index and for people; reading a citation back
title               the title of a conversation
deleted             deleted sessions, which imports leave out; how to restore and purge them
record              what is known of a session without reading it; the branch that continues; when it is stale
catalogue           the records of all sessions here, in SQLite
importers           conversations of other programs
people              whose a conversation is, and which sessions a person sees
echoes              texts that nobody said: those that repeat the memory, which are not indexed, and markup of clients
attachments         files that came with messages: documents
forgotten_text      take text out of lines; hashes of what was forgotten
schedules           when to ask the agent what
"""
