"""The server: MCP, messages and pages behind one port, as far as a command serves them.

``run_server`` opens the parts and runs them. ``requests`` is the front that every request passes, with its log;
``routes`` chooses the part that answers and has the paths of the operator; ``figures`` are those for Prometheus.
"""
