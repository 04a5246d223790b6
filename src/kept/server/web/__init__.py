"""The web view of a memory: pages to search, read, edit and correct what is remembered, for a browser on this machine.

``web_app`` builds the application: ``access`` decides who may call it, and every ``…_screen`` adds pages. A
page is a function that takes a `Visit` and returns a response; it runs in a thread and calls the same services as the
command line.

visit, page_templates      one request and the memory behind it; templates and addresses
web_chat                   the chat, and an answer as it is written
note_html                  the text of a note as HTML
"""
