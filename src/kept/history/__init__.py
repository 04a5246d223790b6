"""History of the notes: who changed what, when and why, and what was there before.

It is stored in the workspace, beside the notes:

    .kept/history/changes/MACHINE.jsonl     one line per change, append-only
    .kept/history/objects/MACHINE.N.pack    larger pieces of text, compressed, append-only

Each machine appends to files of its own, so histories that Syncthing, iCloud or git bring together never conflict.
A line names the note before and after the change by SHA-256, and holds the difference between the two. Damage to the
history never touches a note, and a history that cannot be written never stops a write.

note_history       `NoteHistory`: records changes and reads them back
note_change        one change, and its line
change_log         the lines: appended, read from the end, searched by path
version_store      the bytes of every version, as differences
history_folder     the files in the workspace; `digest` names versions
unseen_changes     changes by other programs, found by a sync
note_diff          what a change did, as a unified diff
undo, line_merge   take changes back, also if later ones touched other lines
rewrite            drop old changes; remove a forgotten text from every version
history_check      checks all of it
git_commits        commits changes if the workspace is in a repository
"""
