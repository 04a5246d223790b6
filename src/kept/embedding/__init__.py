"""Text to vectors. `base` has the protocol; `registry` the table of providers, imported only when one is used.

Built-in model: `static`. `kept models`: `model_catalogue` lists the models, fetches them and opens those that are here,
`onnx` runs them. A GGUF file of the user: `llama_cpp`. On the network: `providers` over `remote`; `batch_api` is the
interface of their cheaper APIs that answer within hours.
"""
