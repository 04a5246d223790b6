"""Numbers as people read them."""

from kept.base.wording import plural, size_text


def test_sizes_are_written_in_decimal_units():
    assert [size_text(size) for size in (0, 999, 1_000, 1_500_000, 2_000_000_000)] == [
        "0 B", "999 B", "1.0 KB", "1.5 MB", "2.0 GB",
    ]  # fmt: skip


def test_a_noun_agrees_with_its_number():
    assert [plural(count, "file") for count in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]
    assert plural(2, "memory", "memories") == "2 memories"
