"""The multilingual model: word pieces of sixteen languages, each with a vector, joined to the built-in model.

The vectors come from Google's Universal Sentence Encoder (multilingual, version 3, Apache-2.0). `distil` computes them
once, when the model is pulled, and writes one file; it runs the original with `sentence_encoder`. `piece_table` reads
the file, `unigram` splits text into pieces, and `joined` is the embedder.
"""
