"""A storage in a folder: a document is a file, and so is a log.

    ROOT/memory/ideas.md                a document
    ROOT/.kept/history/changes.jsonl    a log: one line per entry
    ROOT/.kept/storage/lock             held by a process while it commits
    ROOT/.kept/storage/journal          a commit of several changes that is under way
    ROOT/.kept/storage/leases/          the number of the last holder of each lease
    ROOT/.kept/storage/generations/     how often lines of a log were blanked or rewritten
    ROOT/.kept/displaced/               documents: bytes that lost against another program's, or that a crash tore

`file_storage` has the storage; start there. `steps` makes the changes of a commit, and finishes them after a kill;
`folders` opens files without following links.
"""
