"""The web view of a memory: pages to search, read, edit and correct what is remembered, for a browser on this machine.

``web_app`` builds the application: ``browser_guard`` decides who may call it, ``site`` has the memory and the
conversations, and every module in ``screens`` adds pages. A page is a function that takes a `Visit` and returns a
response; it runs in a thread and calls the same services as the command line.

web_access, sign_in        who may use the pages: one-time links, cookies, tokens
visit, page_templates, page_links, static_files
                           one request; templates; addresses; style sheet and scripts
web_chat, running_answer   the chat; an answer as it is written
live_events                telling pages that something has changed
note_html, note_graph, transcript_view, diff_view, workspace_files
                           notes, their neighbours, conversations, changes and files, as pages show them
bar_chart, calendar_map, score_bar
                           drawings
filter_choices, setting_help, recall_run
                           choices of filters; explanations of settings; measuring recall in the background
"""
