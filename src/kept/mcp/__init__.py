"""The memory as an MCP server, over standard input and output or over HTTP.

Built on the official SDK, which takes a second to import: nothing but `kept mcp` does.
"""
