"""The notes: where they are, how they are found, read, appended to and, on request, cut.

`workspace` and `prompt_files` say which files are notes and which belong to the person, `opened` opens them without
following links, `scan` finds them, `notes` and `daily` append, `removal` cuts passages, `adopt` copies notes in.
"""
