"""The notes: finding, reading and changing them, who changed what, and what waits for a person. It touches the folder
of a workspace or vault, and no other. Start at `workspace` (which files are notes) and `note_writer`.

`opened` opens and reads files without following links, `scan` finds them and notices changes, `line_edit` changes and
removes lines, `adopt` copies the notes of another workspace and `templates` are those of a new one. `daily` says where
daily notes are. `vault` reads that from the settings of Obsidian and Logseq, in the formats of `date_format`. `ignored`
applies .gitignore and .keptignore, and `survey` reports what is left out.

history                    who changed what, and undo
review                     writes of agents that a person accepts or rejects
addition                   a text to add, as a value
replacement                replaces a fact: the old line is struck through, the new one says what it was
validity, statements       when a line holds; the statements of a note
facts, fact_measures, fact_words, fact_changes, fact_match
                           what a line says, and whether it repeats or changes another
common_ends                what two texts share at both ends
change_recorder            how a writer reports its changes to the history
projects                   folders of notes, each for one repository
conflict_copies            copies that other machines leave in a folder, and the marks that git leaves in a note
"""
