"""ONNX models in a folder, through onnxruntime (the extra `kept[neural]`).

`embedder` turns text into vectors and `cross_encoder` judges a question with a passage; `runtime` opens a model for
both of them. `declaration` reads what a model's folder says about it, without loading the model.
"""
