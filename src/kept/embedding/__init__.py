"""Text to vectors. `base` has the protocol; `registry` the table of providers, each imported only when it is used.

Built-in model: `static`, over the file that `piece_table` reads. `kept models`: `model_catalogue` lists the models and
opens those that are here, `model_download` fetches them and `onnx` runs them. A GGUF file of the user: `llama_cpp`.
Both share `local_model`. Providers on the network: `openai` (with Voyage), `gemini` and `ollama` over `remote`;
`batch_api` is the interface of their cheaper APIs that answer within hours.
"""
