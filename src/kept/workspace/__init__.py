"""The notes: finding, reading and appending to them, and removing passages on request.

`workspace` says which files are notes and which belong to the person, `opened` opens and reads them without following
links, `scan` finds them and notices changes, `notes` appends, `removal` removes passages, `adopt` copies the notes of
another workspace.
"""
