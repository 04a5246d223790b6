"""The responder: from an accepted message to a delivered reply, whatever the channel.

``responder`` accepts a message, records it in the ``inbox`` (stored in an ``inbox_file``) and puts it into a
``conversation_queue``. When its turn comes, it asks the ``dispatcher``, which routes it to a command
(``forget_command`` is the largest) or to the agent. The reply is split and delivered through a ``channel``.
"""
