"""Chat models: a request in, streamed events out. It talks to providers, and writes nothing but the usage of a day.

`base` defines requests, events, the `ChatModel` protocol and the models of one agent; start there. `registry` opens the
configured model. `anthropic` and `openai` call provider SDKs through `streaming`; `claude_cli` runs Claude Code;
`extractive` needs no model; `scripted` is for tests. `metered` counts tokens against a daily budget, in the `ledger` of
usage by day. `prompts` are Markdown with slots.
"""
