"""`kept sync`: the same notes on several machines, over git."""
