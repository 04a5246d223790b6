"""Chat models: a request in, streamed events out. It talks to providers, and writes nothing but the usage of a day.

`base` defines requests, events, the `ChatModel` protocol, the models of one agent and prompts (Markdown with slots);
start there. `registry` opens the configured model and counts its tokens against a daily budget, in the `ledger` of
usage by day. `anthropic` and `openai` call provider SDKs through `streaming`; `claude_cli` runs Claude Code;
`extractive` needs no model.
"""
