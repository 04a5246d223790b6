"""Messages in Telegram that are more than a text: media, replies to others."""

import pytest

from tests.support.telegram_reading import read

FILE = {"file_id": "f1", "file_unique_id": "u1"}
STICKER = {"width": 1, "height": 1, "is_animated": False, "is_video": False}
PHOTO = [{**FILE, "width": side, "height": side, "file_size": 34_000} for side in (90, 800, 2_560)]
MEDIA = {
    "(picture, 34.0 KB)": {"photo": PHOTO},
    "(document: report.pdf, 1.2 MB)": {
        "document": {**FILE, "file_name": "report.pdf", "mime_type": "application/pdf", "file_size": 1_234_567}
    },
    "(picture: cat.png, 999 B)": {
        "document": {**FILE, "file_name": "cat.png", "mime_type": "image/png", "file_size": 999}
    },
    "(voice message, 9.0 KB, 0:12 min)": {"voice": {**FILE, "duration": 12, "file_size": 9_000}},
    "(audio: Song, 3:20 min)": {"audio": {**FILE, "duration": 200, "title": "Song"}},
    "(video: a.mp4, 1:05 min)": {"video": {**FILE, "width": 1, "height": 1, "duration": 65, "file_name": "a.mp4"}},
    "(video, 0:05 min)": {"video_note": {**FILE, "length": 1, "duration": 5}},
    "(sticker: 😀)": {"sticker": {**FILE, **STICKER, "type": "regular", "emoji": "😀"}},
    "(location: 59.91000, 10.75000)": {"location": {"latitude": 59.91, "longitude": 10.75}},
    "(contact: Bob, +4712345678)": {"contact": {"first_name": "Bob", "phone_number": "+4712345678"}},
    "(media)": {"dice": {"emoji": "🎲", "value": 3}},
    "(document: evil name)": {"document": {**FILE, "file_name": "(evil\nname)"}},
}


@pytest.mark.parametrize(("description", "fields"), MEDIA.items(), ids=MEDIA)
def test_a_message_without_text_is_named_after_what_it_is(description, fields):
    assert read(None, **fields).message.text == description
    assert read(None, caption="Look!", **fields).message.text == f"Look!\n\n{description}"
    assert read(None, group=True, **fields).line.text == description


def test_a_reply_says_what_it_replies_to():
    other = {"id": 9, "is_bot": False, "first_name": "Bea"}
    original = {"message_id": 2, "date": 1, "chat": {"id": 7, "type": "private"}, "from": other}
    message = read("Do it", reply_to_message={**original, "text": "/forget yes"}).message
    assert (message.text, message.metadata["quoted"]) == ("Do it", {"from": "Bea", "text": "/forget yes"})
    picture = read("What is this?", reply_to_message={**original, "photo": PHOTO}).message
    assert picture.metadata["quoted"]["text"] == "(picture, 34.0 KB)"
    long = read("Hm", reply_to_message={**original, "text": "x" * 10_000}).message
    assert len(long.metadata["quoted"]["text"]) <= 2_000
    topic = {"forum_topic_created": {"name": "Garden", "icon_color": 1}}
    assert "quoted" not in read("Hi", reply_to_message={**original, **topic}).message.metadata
