"""Client of a server: a memory and conversations that `kept serve` keeps, used through a URL and a token.

`remote_memory` has the methods of `Memory`, and `remote_sessions` those of `SessionStore` that commands use. Each is
one call over HTTP (`server_connection`), whose answer is the same value. `mcp_bridge` passes MCP on. Nothing of the
memory is kept here but what waits to be sent (`outbox`). Start with `remote_memory`.
"""
