"""How fast Kept is: figures, not tests. `make bench` runs them."""
