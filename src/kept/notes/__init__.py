"""The notes: finding, reading and changing them, who changed what, and what waits for a person. It touches the storage
of a workspace, and no file. Start at `workspace` (which documents are notes) and `note_writer`.

note_writer                adds a text to a note, and plans it first: a preview is a plan that is not committed
line_edit                  changes and removes lines
replacement                replaces a fact: the old line is struck through, the new one says what it was
review_queue               writes of agents that a person accepts or rejects
history                    writes notes and who changed what in one commit, and undo
scan                       finds the notes there are, and notices changes
daily                      where daily notes are, and the dates in their names
vault                      what Obsidian says about a vault, and what .gitignore and .keptignore leave out
survey                     what is not indexed, and why
adopt                      copies the notes of another workspace; the notes of a new one
projects                   folders of notes, each for one repository
conflict_copies            copies that other machines leave in a folder, and the marks that git leaves in a note
validity                   when a line holds; the statements of a note
facts, fact_changes, fact_match
                           what a line says, and whether it repeats or changes another
"""
