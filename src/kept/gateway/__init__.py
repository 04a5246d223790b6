"""The gateway: from an accepted message to a delivered reply, whatever the channel.

``responder`` accepts a message, records it in the ``inbox`` and puts it into a ``conversation_queue``. When its turn
comes, it asks the ``dispatcher``, which routes it to a command (``forget_dialogue`` asks what to forget) or to the
agent. The reply is split and delivered through a ``channel``.

An inbox is a log of ``inbox_records``, which lead to messages and runs.

``answer_runner`` answers one run, shows in the chat that it is being written, and records it. ``scheduler`` puts
schedules that are due, and the heartbeat, into the inbox. ``local_conversation`` answers at the terminal and on a page,
without an inbox.

``channels`` are HTTP, Telegram and Discord. ``app`` wires an agent and a memory together for programs, and
``server_command`` tells how to start `kept mcp` on this memory.
"""
