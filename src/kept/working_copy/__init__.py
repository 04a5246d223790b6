"""Files of a workspace that a team shares, and how versions of several machines become one.

`git_sync` uses it; git is not known here:

    synced_files     which files of a workspace travel
    file_merge       two versions of a file → one, or a conflict copy
    note_merge       two versions of a note → one, without losing a line; pure
    passage_merge    the same by lines
    day_merge        the same by the entries of a daily note, which day_entries reads
    file_placement   writes or removes a file, with a line in the history, unless another program changes it meanwhile
"""
