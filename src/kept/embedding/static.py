"""The built-in embedder: the sum of the vectors of a text's word pieces, from a table. Nothing to load and little to
compute.

A vector has two parts. The English part is better at English and at names; the shared part knows what words of fifteen
languages have in common. Both have the same length in every vector. The search decides for each query how much each
part counts (`blend_query`), so that choice costs no indexing: the further the question is from the notes in its words,
the more the shared part counts.

Text is split as SentencePiece does it: into the most probable pieces of each word. Written out because importing the
usual library and loading its tables costs more than a whole search. A word never joins the next one, so each word is
split once and cached; only words of scripts without spaces are long.

The file of the model has word pieces with their vectors. It is mapped, not loaded: a search touches the pages of its
own words.

    header    64 bytes: magic; as uint32 the number of pieces, of slots, and of dimensions of each of the two parts;
              SHA-256 of these numbers and of everything after the header
    slots     uint32   hash table: number of a piece plus 1, or 0; a piece is at crc32 of its UTF-8 or after that
    offsets   uint32   start of each piece in the texts, and the end of the last
    scores    float32  logarithm of the probability of each piece
    factors   float32  two a piece: the numbers that the bytes of each part are multiplied by
    vectors   int8     both parts of each piece, one after the other
    texts     bytes    the pieces in UTF-8

All little-endian, and each array at a multiple of 64. `tools/build_model` writes it. Python objects for all pieces
would take longer to load than a search takes.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import sys
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from operator import mul
from typing import Any

from kept.base.records import Matrix
from kept.base.remote_errors import EmbedderUnavailable
from kept.base.values import frozen
from kept.embedding.base import Calibration, Identity, Role, pack_unit_rows

MODEL = "multilingual-384"
MODEL_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model")
TABLE_FILE = "pieces.table"

# Share of the shared part in a query whose words the notes have, and in one whose words they do not have.
SAME_LANGUAGE_SHARE, OTHER_LANGUAGE_SHARE = 0.3, 0.8
# Cosines of unrelated texts and of texts that agree, without the shared part, and what its whole share adds: 0.15 and
# 0.75 at a share of 0.3, 0.05 and 0.89 at 0.8, where cosines of unrelated texts spread half as far again. A floor above
# them, as other models have it, would hide the order of passages in another language than the question.
FLOOR, CEILING = (0.21, -0.2), (0.67, 0.28)
# Share of a score that the vectors have earned: nearly all folds of docs/retrieval.md choose it.
WEIGHT = 0.3
# Share of a question's words, small ones included, that no chunk has. Of questions in the language of the notes, 19 of
# 20 have less than 0.25 (Chinese 0.44); of questions in another language, 19 of 20 have more than 0.44, and half 0.92.
FEW_UNKNOWN, MANY_UNKNOWN = 0.35, 0.7

# Share of a text in pieces of some letters from which on the model knows it. Letters thrown together are split into
# pieces of one or two, or have none.
KNOWN_FROM = 0.5
_TELLING_LETTERS = 3

_MAX_CHARS = 20_000
# Up to here, pieces are looked up in the file. For more text, a dict of all pieces pays off, and so does numpy.
_FEW_CHARS = 2_000


class StaticEmbedder:
    """``calibration`` is for the cosines of vectors as `embed` returns them, with both parts at equal length."""

    languages = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")

    is_cheap = True
    """Its vectors are computed faster than they are stored, so they are not cached."""

    def __init__(self, folder: str = MODEL_FOLDER) -> None:
        self._table = table = PieceTable(os.path.join(folder, TABLE_FILE))
        self._encoder = PieceEncoder(table.find, table.scores.__getitem__)
        self.identity = Identity("local", MODEL, table.dims, f"pieces-1:{table.digest}")
        self.calibration = _calibration_at(0.5)

    def embed(self, texts: Sequence[str], *, role: Role) -> Matrix:
        texts = [text[:_MAX_CHARS] for text in texts]
        is_short = sum(map(len, texts)) <= _FEW_CHARS
        encoder = self._encoder if is_short else self._bulk_encoder
        encoded = [encoder.encode(text) for text in texts]
        # Importing numpy takes longer than a search, so a short text uses it only if it is imported already.
        if is_short and "numpy" not in sys.modules:
            sums = [self._table.sum_rows(rows) for rows in encoded]
        else:
            sums = self._table.sum_many(encoded)
        vectors: list[list[float]] = []
        for parts in sums:
            vector: list[float] = []
            for part in parts:  # of the same length; a text of unknown characters may have no English part
                norm = math.sqrt(math.fsum(map(mul, part, part)))
                vector += [number / norm for number in part] if norm > 1e-10 else part
            vectors.append(vector)
        return pack_unit_rows(vectors, self._table.dims)

    def blend_query(self, row: bytes, *, unknown: float) -> tuple[bytes, Calibration]:
        """Return the vector of a query with its parts in the right proportion, and the scale of its cosines.

        ``row`` is its vector from `embed`. ``unknown`` is the share of its words that no chunk has.
        """
        foreign = min(1.0, max(0.0, (unknown - FEW_UNKNOWN) / (MANY_UNKNOWN - FEW_UNKNOWN)))
        share = SAME_LANGUAGE_SHARE + foreign * (OTHER_LANGUAGE_SHARE - SAME_LANGUAGE_SHARE)
        numbers, middle = [*memoryview(row).cast("f")], self._table.english_dims
        english = [(1 - share) * number for number in numbers[:middle]]
        shared = [share * number for number in numbers[middle:]]
        return pack_unit_rows([english + shared], len(numbers)).data, _calibration_at(share)

    def knows(self, text: str) -> bool:
        rows = self._encoder.encode(text[:_FEW_CHARS])
        telling = 0
        for piece in (self._table.text(row).lstrip(SPACE) for row in rows if row != UNKNOWN):
            # Kana say as much as two letters, an ideograph or a Korean syllable as much as three.
            kana = sum("\u3040" <= char <= "\u30ff" for char in piece)
            dense = sum("\u3400" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3" for char in piece)
            telling += len(piece) if len(piece) + kana + 2 * dense >= _TELLING_LETTERS else 0
        return telling > KNOWN_FROM * sum(not char.isspace() for char in text)

    @cached_property
    def _bulk_encoder(self) -> PieceEncoder:
        return PieceEncoder(self._table.pieces().get, self._table.scores.__getitem__)


def _calibration_at(share: float) -> Calibration:
    # The parts of a document have the length 1/√2 each, and those of a query are shortened to their shares.
    length = math.sqrt(2 * ((1 - share) ** 2 + share**2))
    floor, ceiling = (part + share * more for part, more in (FLOOR, CEILING))
    return Calibration(floor / length, ceiling / length, WEIGHT)


# splitting text

SPACE = "▁"
# Number of the piece for characters that the vocabulary does not have.
UNKNOWN = 0
# Logarithm of the probability of such a character: ten below the rarest piece, as in SentencePiece.
UNKNOWN_SCORE = -28.833
LONGEST_PIECE = 16
_CACHED_WORDS = 200_000
_IMPOSSIBLE = -1e30


@frozen
class PieceEncoder:
    """Encoder over a vocabulary: ``find`` returns the number of a piece or None, ``score`` its log probability."""

    find: Callable[[str], int | None]
    score: Callable[[int], float]
    _cache: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces."""
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)  # the form that the vocabulary was made from
        cache = self._cache
        rows: list[int] = []
        for word in text.split():
            word_rows = cache.get(word)
            if word_rows is None:
                if len(cache) >= _CACHED_WORDS:
                    cache.clear()
                word_rows = cache[word] = self._split(SPACE + word)
            rows += word_rows
        return rows

    def _split(self, word: str) -> tuple[int, ...]:
        """Return the pieces with the highest sum of scores (Viterbi): ``best[n]`` is that of the first n characters."""
        find, score = self.find, self.score
        length = len(word)
        best = [0.0, *[_IMPOSSIBLE] * length]
        starts = [0] * (length + 1)
        pieces = [UNKNOWN] * (length + 1)
        for start in range(length):
            base = best[start]
            if base + UNKNOWN_SCORE > best[start + 1]:
                best[start + 1], starts[start + 1] = base + UNKNOWN_SCORE, start
                pieces[start + 1] = UNKNOWN
            for end in range(start + 1, min(start + LONGEST_PIECE, length) + 1):
                piece = find(word[start:end])
                if piece is not None and base + score(piece) > best[end]:
                    best[end], starts[end], pieces[end] = base + score(piece), start, piece
        rows: list[int] = []
        at = length
        while at:
            rows.append(pieces[at])
            at = starts[at]
        return tuple(reversed(rows))


_MAGIC = b"KEPTPT02"
_HEADER = struct.Struct("<8sIIII32s")
_ALIGNMENT = 64

# Vector of a text as its English and its shared part, of any length.
Parts = tuple[list[float], list[float]]


class PieceTable:
    """An open file. Raises EmbedderUnavailable if it cannot be used."""

    def __init__(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            magic, self.rows, slots, self.english_dims, self.shared_dims, digest = _HEADER.unpack_from(view)
            self.dims = self.english_dims + self.shared_dims
            if magic != _MAGIC or not self.rows or slots & (slots - 1) or slots <= self.rows:
                raise ValueError("it is not a table of pieces")
            whole, start, sections = memoryview(view), _ALIGNMENT, []
            for size in (slots * 4, (self.rows + 1) * 4, self.rows * 4, self.rows * 8, self.rows * self.dims):
                sections.append(whole[start : start + size])
                start += size + -size % _ALIGNMENT
            if start >= len(whole):
                raise ValueError("it is cut short")
            self._slots, self._offsets = (section.cast("I") for section in sections[:2])
            self.scores, self._factors = (section.cast("f") for section in sections[2:4])
            self._vectors, self._texts = sections[4].cast("b"), whole[start:]
        except (OSError, ValueError, struct.error) as exc:
            raise EmbedderUnavailable(
                f"The built-in embedding model cannot be read ({path}: {exc}).",
                hint="Reinstall Kept: pip install --force-reinstall kept; in a checkout: pip install -e .",
            ) from exc
        self.digest = digest.hex()
        """Identifies the vectors. It is not compared with the content, which the build has done."""
        self._mask = slots - 1

    def find(self, piece: str) -> int | None:
        """Return the number of a piece, or None."""
        data = piece.encode("utf-8", "replace")
        slot = zlib.crc32(data) & self._mask
        while entry := self._slots[slot]:
            row: int = entry - 1
            if self._texts[self._offsets[row] : self._offsets[row + 1]] == data:
                return row
            slot = (slot + 1) & self._mask
        return None

    def text(self, row: int) -> str:
        return self._texts[self._offsets[row] : self._offsets[row + 1]].tobytes().decode()

    def pieces(self) -> dict[str, int]:
        """Return all pieces with their numbers, for work that looks up many."""
        texts, offsets = self._texts.tobytes(), self._offsets
        pieces = {texts[offsets[row] : offsets[row + 1]].decode(): row for row in range(self.rows)}
        pieces.pop("", None)
        return pieces

    def sum_rows(self, rows: Sequence[int]) -> Parts:
        """Return the sum of the vectors of some pieces, without numpy."""
        dims, middle = self.dims, self.english_dims
        total = [0.0] * dims
        for row in rows:
            english, shared = self._factors[2 * row], self._factors[2 * row + 1]
            numbers = self._vectors[row * dims : (row + 1) * dims].tolist()
            scaled = [english * number for number in numbers[:middle]] + [
                shared * number for number in numbers[middle:]
            ]
            total = [so_far + number for so_far, number in zip(total, scaled, strict=True)]
        return total[:middle], total[middle:]

    def sum_many(self, texts: Sequence[Sequence[int]]) -> list[Parts]:
        """Return the same for many texts, with numpy. The sums are exact, so both ways give the same vector."""
        import numpy as np

        vectors = np.frombuffer(self._vectors, dtype=np.int8).reshape(self.rows, self.dims)
        factors = np.asarray(self._factors).reshape(self.rows, 2)
        sums: list[Parts] = []
        for text in texts:
            rows = np.array(text, dtype=np.intp)
            english, shared = np.hsplit(vectors[rows], [self.english_dims])
            weights: Any = factors[rows].astype(np.float64)
            sums.append(((weights[:, 0] @ english).tolist(), (weights[:, 1] @ shared).tolist()))
        return sums
