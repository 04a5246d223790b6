"""The web view of a memory: pages to search, read, edit and correct what is remembered, for a browser on this machine.

``web_app`` builds the application: ``access`` decides who may call it, and every screen adds pages. A page is a
function that takes a `Visit` and returns a response; it runs in a thread.

visit, page_templates      one request and the memory behind it; templates and addresses
note_html                  the text of a note as HTML
changes_screen, chat_screen, conversations_screen, forget_screen, health_screen, note_screen, review_screen,
search_screen, settings_screen, timeline_screen
                           the pages, each with what only it shows
"""
