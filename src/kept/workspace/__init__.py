"""The notes: finding, reading and appending to them, and removing passages on request.

`workspace` and `prompt_files` say which files are notes and which belong to the person, `opened` opens them without
following links and `files` reads one, `scan` finds them and `watch` reports changes, `notes` and `daily` append,
`removal` removes passages, `adopt` copies the notes of another workspace.
"""
