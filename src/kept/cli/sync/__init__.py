"""`kept sync`: ``git_sync`` shares the notes of several machines, ``git`` runs the program."""
