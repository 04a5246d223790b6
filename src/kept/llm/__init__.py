"""Chat models: a request in, streamed events out.

``base`` defines requests, events and the `ChatModel` protocol; ``registry`` opens the configured model. ``anthropic``
and ``openai`` call provider SDKs through ``streaming``; ``claude_cli`` runs Claude Code; ``extractive`` needs no model;
``scripted`` is for tests. ``metered`` counts tokens against a daily budget. ``family`` has the models of one agent.
"""
