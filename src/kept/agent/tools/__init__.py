"""The memory as tools for a model, independent of the transport.

tool_definitions   the tools: names, descriptions, arguments; checking a call
toolbox            running a call on the memory and the conversations
record_json        results, and changes of notes, as data for a program
tool_text          results as text for a model, and how they cite a passage

>>> from kept import Memory, SessionStore, Toolbox
>>> toolbox = Toolbox(memory, sessions)
>>> outcome = toolbox.run("memory_search", {"query": "which port is staging on?"})
>>> outcome.text, outcome.result, outcome.is_error

`definitions("anthropic")` and `definitions("openai")` return the tools in the formats of those APIs.
"""
