"""The memory as an MCP server, over standard input and output or over HTTP.

transports         parse the address, import the SDK, run the server
invalid_messages   answer lines on standard input that the SDK cannot read
server             answer requests: tools, resources, prompts
progress           report the progress of a call to its client
resources          notes and daily logs as resources

Built on the official SDK. Importing it takes a second, so only `kept mcp` does.
"""
