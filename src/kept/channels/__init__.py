"""Channels: where messages come from and replies go.

``gateway`` runs the configured channels in front of the responders of its agents (``switchboard``). ``http`` is the
server: ``http_messages`` has Kept's own format, ``chat_completions`` OpenAI's (read by ``chat_request``). ``telegram``
and ``discord`` are chat services. Each sorts what it receives (``telegram_messages``, ``discord_messages``), names what
is not text (``media``), and hands it on through a ``chat_intake``. ``terminal`` is the conversation of `kept chat`,
which needs no responder. Each is imported when it is used.
"""
