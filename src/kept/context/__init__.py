"""The request that a model gets, built from a transcript, workspace files and recalled memories. Pure.

``view`` selects the messages since the last compaction, ``turns`` converts them to the model's turns and ``build``
assembles the request within the limits of ``budget``. ``fence`` marks text from others as data, ``trim`` shortens what
is too long. ``compaction_plan`` chooses what a compaction removes; ``transcript_text`` renders that for summaries.
"""
