"""Measures recall: how often a search returns a passage that answers a query.

`dataset` reads a set, `layout` writes its documents to disk, `query_runner` asks its queries in every variant and
`metrics` judges the hits. `measurement` does all of it for a set, and `set_workers` for several, each in a process of
its own. `threshold` has the cost of a threshold, `curves` the other curves, and `starter` makes a set of the user's own
notes, with the queries of `rewording`. `figure_text` prints figures. `json_report` is the output of `--json`.
`report_page` is the page of `--report`; its plots are defined in `report_plots` and drawn by `svg_plot`.
"""
