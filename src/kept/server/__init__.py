"""The server: MCP, the HTTP API, messages and pages behind one port, as far as a command serves them.

``run_server`` opens the parts and runs them. ``requests`` is the front that every request passes, with its log,
the choice of the part that answers, and the paths of an operator; ``figures`` are those for Prometheus.
``shared_gateway`` lets one of several servers on a database answer messages.

``mcp`` are the tools for other programs, ``api`` the methods of a memory over HTTP, ``web`` the pages for a browser,
``live`` keeps the index current while a server runs, and ``tokens`` says who may come in. ``doctor`` checks everything,
and ``bench`` measures recall.
"""
