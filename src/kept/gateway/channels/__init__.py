"""Channels: where messages come from and replies go.

``gateway`` runs the configured channels in front of the responders of its agents (``switchboard``). ``http`` has the
routes and lets in whom a token allows: ``http_messages`` has Kept's own format, ``chat_completions`` OpenAI's.
``telegram`` and ``discord`` are chat services (``telegram_html`` renders replies, ``telegram_messages`` sorts what
arrives). Both build on ``chat_intake``, which names what is not text and hands messages to the responder, where they
wait for their turn in a ``conversation_queue``. Each is imported when it is used.
"""
