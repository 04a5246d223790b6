"""The gateway: from an accepted message to a delivered reply, whatever the channel.

``responder`` accepts a message, records it in the ``inbox`` and puts it into a ``conversation_queue``. When its turn
comes, it asks the ``dispatcher``, which routes it to a command (``forget_dialogue`` asks what to forget) or to the
agent. The reply is split and delivered through a ``channel``.

``scheduler`` puts schedules that are due, and the heartbeat, into the inbox. At the terminal and on a page, a
`LocalConversation` of the ``dispatcher`` answers without an inbox.

``channels`` are HTTP, Telegram and Discord. ``app`` wires an agent and a memory together for programs, and tells how to
start `kept mcp` on this memory.
"""
