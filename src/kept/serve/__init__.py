"""Everything behind one port: MCP, the HTTP channel, the pages, and what an operator needs.

``one_port`` wires the parts together and runs them. ``request_front`` takes in every request, ``stream_watch`` ends
it with its token (``known_tokens``), and ``paths`` chooses the part that answers. ``answering`` runs the gateway in
one of the processes of a home, to which the others pass requests on (``forwarding``). ``shared_key`` lets the cookies
of one machine be good on all of a team. For operators: ``probes``,
``figures`` and ``request_log``.
"""
