"""The language of a question."""

from __future__ import annotations

import pytest

from kept.words.languages import guess_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wann ist der Termin beim Zahnarzt?", "de"),
        ("¿Cuándo es la cita con el dentista?", "es"),
        ("Quand est le rendez-vous chez le dentiste ?", "fr"),
        ("когда приём у зубного врача", "ru"),
        ("牙医预约是什么时候", "zh"),
        ("歯医者の予約はいつですか", "ja"),
        ("치과 예약이 언제입니까", "ko"),
        ("นัดหมอฟันเมื่อไร", "th"),
        ("متى موعد طبيب الأسنان", "ar"),
        ("when is the dentist appointment", None),
        ("Zahnarzt", None),
        ("the Tōkyō office", None),
        ("", None),
        ("42 ?!", None),
    ],
)
def test_the_language_of_a_question(text, language):
    assert guess_language(text) == language
