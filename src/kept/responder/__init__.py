"""The responder: from an accepted message to a delivered reply, whatever the channel.

``responder`` accepts a message, records it in the ``inbox`` (stored in an ``inbox_file``) and puts it into a
``conversation_queue``. When its turn comes, ``answer_runner`` asks the ``dispatcher``, which routes it to ``commands``
(``forget`` is the largest) or to the agent. The reply is cut by ``reply_split`` and delivered through a ``channel``.
``timing`` has the delays of all of these.
"""
