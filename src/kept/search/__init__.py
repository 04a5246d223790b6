"""From a question to hits: words and meaning, fused into one score that can be explained."""
