"""Print recall@10 and MRR@10 of embedding models, by their vectors alone or, with --fused, as `kept search` ranks.

    python -m benchmarks.model_recall /path/to/sets/{project_notes,xquad_cross} --models multilingual bge-small-en

Neither has a threshold. By vectors alone, a document has one vector, and both parts of the built-in model count the
same. A model is a name of `kept models`, of which all but the built-in one are read from --models-folder, perhaps with
settings of `memory_search.local`: bge-small-en:max_tokens=128. CPU time is that of this process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np

from kept.config import load_config
from kept.config.schema import LocalModelSettings
from kept.embedding.model_catalogue import BUILT_IN, CATALOGUE, open_pulled
from kept.embedding.static import StaticEmbedder
from kept.server.bench.measurement import measure_set
from kept.server.bench.sets import read_set

TOP = 10


def open_model(name: str, models_folder: str):
    name, _, options = name.partition(":")
    values = dict(option.split("=", 1) for option in options.split(",") if option)
    local = replace(
        LocalModelSettings(), **{key: int(value) if value.isdigit() else value for key, value in values.items()}
    )
    if name == BUILT_IN:
        return StaticEmbedder()
    return open_pulled(models_folder, CATALOGUE[name], local)  # not checked, so that it may be a changed copy


def vectors_of(embedder, texts: list[str], role: str) -> np.ndarray:
    matrix = embedder.embed(texts, role=role)
    return np.frombuffer(matrix.data, dtype="<f4").reshape(-1, matrix.dims)


def measure(embedder, dataset, most_queries: int) -> dict[str, float]:
    texts = [document.text for document in dataset.documents]
    groups = np.array([document.group or "" for document in dataset.documents])
    ids = [document.id for document in dataset.documents]
    answerable = [query for query in dataset.queries if dataset.relevant.get(query.id)]
    queries = answerable[:: max(1, len(answerable) // most_queries)][:most_queries]
    started = time.process_time()
    documents = np.concatenate(
        [vectors_of(embedder, texts[at : at + 64], "document") for at in range(0, len(texts), 64)]
    )
    document_ms = (time.process_time() - started) * 1000 / len(texts)
    started = time.process_time()
    asked = np.concatenate([vectors_of(embedder, [query.text], "query") for query in queries])
    query_ms = (time.process_time() - started) * 1000 / len(queries)
    recalls: dict[str, list[float]] = defaultdict(list)
    ranks: list[float] = []
    for query, vector in zip(queries, asked, strict=True):
        scores = documents @ vector
        if query.group:
            scores = np.where(groups == query.group, scores, -2)
        best = [ids[at] for at in np.argsort(-scores, kind="stable")[:TOP]]
        relevant = dataset.relevant[query.id]
        recalls["all"].append(len(set(relevant) & set(best)) / min(TOP, len(relevant)))
        recalls[query.category].append(recalls["all"][-1])
        ranks.append(next((1 / (at + 1) for at, document in enumerate(best) if document in relevant), 0.0))
    return {
        "recall": float(np.mean(recalls["all"])),
        "mrr": float(np.mean(ranks)),
        "document_ms": document_ms,
        "query_ms": query_ms,
    }


def measure_fused(embedder, dataset, most_queries: int, settings: dict[str, str]) -> dict[str, float]:
    values = {"memory_search.query.min_score": 0, **settings}
    with tempfile.TemporaryDirectory() as home:
        config = load_config(home=home, settings=values, environ={}).config
        figures = measure_set(dataset, config, most_queries=most_queries, embedder=embedder)["kept"]
    return {"recall": figures["recall@10"], "mrr": figures["mrr@10"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--models", nargs="+", default=[BUILT_IN])
    parser.add_argument("--models-folder", default=os.path.expanduser("~/.kept/models"))
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    for folder in arguments.sets:
        dataset = read_set(folder)
        for name in arguments.models:
            embedder = open_model(name, arguments.models_folder)
            if arguments.fused:
                figures = measure_fused(embedder, dataset, arguments.queries, settings)
            else:
                figures = measure(embedder, dataset, arguments.queries)
            times = "".join(f"  {figures[unit]:6.1f} {unit}" for unit in ("document_ms", "query_ms") if unit in figures)
            print(
                f"{os.path.basename(folder):<16}{name:<40} recall@10 {figures['recall']:.3f}  MRR {figures['mrr']:.3f}"
                f"{times}",
                flush=True,
            )


if __name__ == "__main__":
    main()
