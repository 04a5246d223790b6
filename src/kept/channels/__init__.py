"""Channels: where messages come from and replies go.

``gateway`` runs the configured channels in front of one responder: ``http`` (endpoints and server), and ``telegram``,
which reads updates through a ``telegram_bot`` and sorts them with ``telegram_messages``. ``terminal`` is the
conversation of `kept chat`, which needs no responder. Each is imported when it is used.
"""
