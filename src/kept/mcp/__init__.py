"""The memory as an MCP server, over standard input and output or over HTTP.

transports   parse the address, import the SDK, run the server
server       answer requests: tools, resources, prompts; report the progress of a call
tool_scopes  the scope that a token needs for each tool
resources    notes and daily logs as resources

Built on the official SDK. Importing it takes a second, so only `kept mcp` does.
"""
