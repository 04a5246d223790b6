"""The notes: finding, reading and appending to them, and removing passages on request.

`workspace` says which files are notes and which belong to the person, `opened` opens and reads them without following
links, `scan` finds them and notices changes, `notes` appends, `removal` removes passages, `adopt` copies the notes of
another workspace and `templates` are those of a new one.

`daily` says where daily notes are. `vault` reads that from the settings of Obsidian and Logseq, in the formats of
`date_format`. `ignored` applies .gitignore and .keptignore, and `survey` reports what is left out.
"""
