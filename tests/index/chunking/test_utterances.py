"""Chunks of a conversation: all utterances are covered, and cutting as it grows gives the same as cutting it whole."""

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from kept.index.chunking.utterances import CONTINUED, MAX_CHUNK_CHARS, chunk_utterances, find_settled
from kept.sessions.spoken import Utterance

KINDS = st.sampled_from(["user", "assistant", "tool", "system", "summary"])
TEXTS = st.one_of(
    st.text(min_size=1, max_size=60),
    st.tuples(st.sampled_from(["a", "word ", "line\n", "para\n\n", "的"]), st.integers(1, 3000)).map(
        lambda drawn: drawn[0] * drawn[1]
    ),
).filter(lambda text: text.strip())


@st.composite
def conversations(draw):
    line, utterances = 1, []
    for kind, text, gap, start in draw(
        st.lists(st.tuples(KINDS, TEXTS, st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=25)
    ):
        line += gap
        day = dt.date(2026, 3, 14)
        utterances.append(
            Utterance(line, kind, "Ann", day, "2026-03-14 15:09", line, text.strip(), starts_conversation=start == 0)
        )
    return utterances


@given(conversations())
def test_chunks_cover_every_utterance_in_order_within_their_limit(utterances):
    chunks = chunk_utterances(utterances)
    by_line = {utterance.line: utterance for utterance in utterances if utterance.kind != "tool"}
    assert [*dict.fromkeys(chunk.utterance.line for chunk in chunks)] == [*by_line]
    pieces = []
    for chunk in chunks:
        label = by_line[chunk.utterance.line].label.strip()
        assert chunk.text.startswith(label), "every piece says who and when"
        pieces.append(chunk.text.removeprefix(f"{label} {CONTINUED}").removeprefix(label))
        assert 0 < len(pieces[-1]) <= MAX_CHUNK_CHARS
        assert pieces[-1].strip() in by_line[chunk.utterance.line].shown
    squeezed = "".join("".join(piece.split()) for piece in pieces)
    assert squeezed == "".join("".join(utterance.text.split()) for utterance in by_line.values())


def test_the_output_of_a_tool_is_found_by_its_neighbours_and_is_no_chunk():
    day = dt.date(2026, 3, 14)
    texts = (("user", "Run the tests."), ("tool", "← 3 failed"), ("assistant", "They fail."))
    utterances = [
        Utterance(line, kind, kind, day, "2026-03-14 15:09", line, text) for line, (kind, text) in enumerate(texts, 2)
    ]
    chunks = chunk_utterances(utterances)
    assert [chunk.utterance.line for chunk in chunks] == [2, 4]
    assert all("3 failed" in chunk.context for chunk in chunks)


@settings(max_examples=200)
@given(conversations(), st.data())
def test_cutting_a_conversation_as_it_grows_gives_what_cutting_it_whole_gives(utterances, data):
    kept, settled_line, resume_line = [], 0, 0
    sizes = sorted(data.draw(st.sets(st.integers(1, len(utterances)), max_size=5)) | {len(utterances)})
    for size in sizes:
        seen = [utterance for utterance in utterances[:size] if utterance.line >= resume_line]
        chunks = chunk_utterances(seen, after_line=settled_line)
        kept = [chunk for chunk in kept if chunk.utterance.line <= settled_line] + chunks
        settled = find_settled(seen, after_line=settled_line)
        if settled:
            settled_line, resume_line = settled.line, settled.resume_line
    assert kept == chunk_utterances(utterances)
