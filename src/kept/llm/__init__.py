"""Chat models: a request in, streamed events out.

``base`` defines requests, events and the `ChatModel` protocol; ``registry`` opens the configured model. ``anthropic``
and ``openai`` call provider SDKs through ``streaming`` and ``model_service``; ``claude_cli`` runs Claude Code through
``process``; ``extractive`` needs no model; ``scripted`` is for tests. ``requests`` measures and renders requests, and
``metered`` counts tokens against a daily budget.
"""
