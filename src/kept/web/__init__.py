"""The web view of a memory: pages to search, read, edit and tend what is remembered, for a browser on this machine.

``web_server`` listens and runs the application that ``web_app`` builds: ``browser_guard`` decides who may call it,
``site`` has the memory and the conversations, and every module in ``screens`` adds pages. A page is a function that
takes a `Visit` and returns a response; it runs in a thread and calls the same services as the command line. Only
`kept web` imports this package.
"""
