"""History of the notes: who changed what, when and why, and what was there before.

It is stored in the workspace, beside the notes:

    .kept/history/changes/MACHINE.jsonl     one line per change, append-only
    .kept/history/objects/MACHINE.N.pack    larger pieces of text, compressed, append-only

Each machine appends to files of its own, so histories that Syncthing, iCloud or git bring together never conflict.
A line names the note before and after the change by SHA-256, and holds the difference between the two. Damage to the
history never touches a note, and a history that cannot be written never stops a write.
"""
