"""Print the CPU time of bge-small-en: python -m benchmarks.local_models"""

from __future__ import annotations

import time

from kept.embedding.model_catalogue import CATALOGUE
from kept.embedding.onnx import OnnxEmbedder
from tests.support.embedding_models import bge_folder

QUERY = "which port does the staging database use?"
SENTENCE = "In March we moved the staging database to port {}, because the old one was taken by the proxy. "
CHUNKS = 20


def chunk(number: int, sentences: int) -> str:
    return "".join(SENTENCE.format(5_000 + number * 100 + at) for at in range(sentences))


def main() -> None:
    model = CATALOGUE["bge-small-en"]
    embedder = OnnxEmbedder(str(bge_folder()), dims=model.dims, calibration=model.calibration)
    steps = {
        "open and identify, as every command does": lambda: embedder.identity,
        "load the runtime, the model and its tokenizer, embed one query": lambda: embedder.embed([QUERY], role="query"),
        "one more query": lambda: embedder.embed([QUERY], role="query"),
    }
    for name, step in steps.items():
        print(f"{cpu_ms(step):8.1f} ms  {name}")
    for name, sentences in (("short", 2), ("full (about 400 tokens)", 18)):
        texts = [chunk(number, sentences) for number in range(CHUNKS)]
        each = cpu_ms(lambda texts=texts: embedder.embed(texts, role="document")) / CHUNKS
        print(f"{each:8.1f} ms  per {name} chunk")


def cpu_ms(step) -> float:
    started = time.process_time()
    step()
    return (time.process_time() - started) * 1000


if __name__ == "__main__":
    main()
