"""The memory as an MCP server, over standard input and output or over HTTP.

transports   parse the address, import the SDK, run the server
server       answer requests: tools, and notes as resources; what a token allows

Built on the official SDK. Importing it takes a second, so it is imported when a server starts.
"""
