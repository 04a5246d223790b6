"""Writes of agents that wait for a person: proposals, which are not written yet, and changes that are listed.

    .kept/proposals/ID.json     one item that waits, in the workspace

A file is plain JSON and is removed when a person has decided. Searches do not find it.

review_queue       `ReviewQueue`: lists items; accepts, edits or rejects them; writes what a model chose
review_item        one item, the files of all, and recorders that list a write or stop before it
"""
