"""From files to index: what has to be done (plan), and doing it (sync)."""
