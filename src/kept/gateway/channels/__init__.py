"""Channels: where messages come from and replies go.

``gateway`` runs the configured channels in front of the responders of its agents. ``http`` has the routes, lets in
whom a token allows, and has Kept's own format; ``chat_completions`` has OpenAI's. ``telegram`` and
``discord`` are chat services (``telegram_messages`` sorts what arrives and renders replies). Both build on
``chat_intake``, which names what is not text and hands messages to the responder: they wait on disk in the inbox, and
for their turn in the queue of their conversation. Each is imported when it is used.
"""
