"""From what was said to an answer that is remembered."""
