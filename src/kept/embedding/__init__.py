"""Text to vectors. `base` has the protocol; `registry` the table of providers, each imported only when it is used.

Built-in model: `static`. Models on this machine: `local_model` finds the files and measures their scale, `onnx/` and
`llama_cpp` run them. Providers on the network: `openai`, `gemini`, `voyage` and `ollama` over `remote`; `batch_api/`
has the cheaper APIs that answer within hours.

`kept models`: `model_catalogue` lists the models, `model_download` fetches them (wheels from `package_index`), and
`pulled_model` opens them. `multilingual/` adds other languages to the built-in model, and `protobuf` reads model files.
"""
