"""The notes themselves: where they are, how they are read, and the only two ways they are ever written."""
