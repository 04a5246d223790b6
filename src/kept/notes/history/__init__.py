"""History of the notes: who changed what, when and why, and what was there before.

It is stored in the workspace, beside the notes:

    .kept/history/changes/MACHINE.jsonl     one line per change, append-only
    .kept/history/objects/ab/….z            one version of a note, compressed with zlib, named by its SHA-256

Each machine appends to a file of its own, so histories that Syncthing or iCloud bring together never conflict. A line
names the note before and after the change by SHA-256. Damage to the history never touches a note, and a history that
cannot be written never stops a write.

note_history       a change, who made it, and its line; `NoteHistory` plans lines and versions, and reads them back;
                   `commit_notes` writes notes with them
unseen_changes     changes by other programs, found by a sync
check              whether lines and versions can be read
undo, line_changes take changes back, also if later ones touched other lines; unified diffs
"""
