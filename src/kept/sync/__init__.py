"""`kept sync`: the same notes on several machines, over git.

git_sync    `GitSync`: commits the notes that changed, fetches, merges, writes what arrived, and pushes
"""
