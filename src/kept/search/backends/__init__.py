"""Other programs that answer a search instead of Kept's own index: `qmd`."""
