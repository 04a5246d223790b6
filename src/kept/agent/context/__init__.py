"""The request that a model gets, built from a transcript, workspace files and recalled memories. Pure.

``view`` selects the messages since the last compaction; ``model_turns`` converts them to the model's turns, and
``context`` assembles the request within a budget and records what it had. ``fence`` marks text from others as data.
``compaction_plan`` chooses what a compaction removes, renders that for summaries, and drops old tool results.
``shortening`` chooses what of the workspace files fits, and cuts long texts.
"""
