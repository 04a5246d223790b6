"""Makes the built-in embedding model, one file, from the data of two wheels: `python -m build_model WHEELS FILE`.

`sources` reads the wheels, `sentence_encoder` runs the multilingual encoder that the table is distilled from,
`piece_vectors` computes the vectors of all pieces, and `table_file` writes the file that `kept.embedding.static`
reads. `hatch_build.py` runs this once; the product contains none of it.
"""
