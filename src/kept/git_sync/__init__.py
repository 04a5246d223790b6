"""Synchronises a workspace with a team over git.

`GitSync.run` commits what changed, fetches, merges, and pushes. Git stores and transfers; which files travel, how they
are merged and how they are written is decided here, so neither a hook, a filter, a merge driver nor an attribute of a
repository has a say in it:

    git_sync         the whole
    synced_files     which files of a workspace travel, and their state
    tree_merge       two commits → the changes that join them
    note_merge       two versions of a note → one, without losing a line; pure
    passage_merge    the same by lines
    day_merge        the same by the entries of a daily note, which day_entries reads
    merge_writer     writes the changes into the workspace, with the history
    sync_commit      what commits say
    repository       whether a repository may be used, its refs, and its remote
    git_objects      trees, files and commits as bytes
    sync_setup       connects a workspace to a remote
    sync_loop        synchronises regularly
    sync_report      what a sync did

A merge is stored as `refs/kept/merge` before the first note is written. A process that is killed leaves it there, and
the next sync goes on with it.
"""
