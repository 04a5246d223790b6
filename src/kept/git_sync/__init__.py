"""Synchronises a workspace with a team over git.

`GitSync.run` commits what changed, fetches, merges, and pushes. Git stores and transfers; which files travel, how they
are merged and how they are written is decided here, so neither a hook, a filter, a merge driver nor an attribute of a
repository has a say in it (`working_copy` has the rules and the merges):

    git_sync         the whole
    committed_files  which files of a workspace differ from a commit, and which of a commit are taken
    tree_merge       two commits → the changes that join them
    transcript_exchange
                     conversations: each machine sends its own, and takes copies of those of others
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
