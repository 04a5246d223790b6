"""What answers a search other than the index of our own, and what happens when it does not."""
