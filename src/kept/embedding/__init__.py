"""Text to vectors. `base` has the protocol; `registry` the table of providers, each imported only when it is used.

Built-in model: `static`. Models on this machine: `local_model` finds the files and measures their scale, `onnx/` and
`llama_cpp` run them. Providers on the network: `openai`, `gemini`, `voyage` and `ollama` over `remote`; `batch_api/`
has the cheaper APIs that answer within hours.
"""
