"""The web view of a memory: pages to search, read, edit and correct what is remembered, for a browser on this machine.

``web_app`` builds the application: ``browser_guard`` decides who may call it, ``site`` has the memory and the
conversations, and every module in ``screens`` adds pages. A page is a function that takes a `Visit` and returns a
response; it runs in a thread and calls the same services as the command line.

web_access, sign_in        who may use the pages: one-time links, cookies, tokens
visit, page_templates      one request; templates and addresses
web_chat                   the chat, and an answer as it is written
note_html, transcript_view, diff_view, workspace_files
                           notes, conversations, changes and files, as pages show them
charts                     drawings
"""
