"""Chat models: a request in, streamed events out.

``base`` defines requests, events, the `ChatModel` protocol and the models of one agent; ``registry`` opens the
configured model. ``anthropic`` and ``openai`` call provider SDKs through ``streaming``; ``claude_cli`` runs Claude
Code; ``extractive`` needs no model; ``scripted`` is for tests. ``metered`` counts tokens against a daily budget.
"""
