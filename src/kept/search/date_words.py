"""Words for dates and periods, as words are indexed: lower case, without accents.

Each line of a list holds the words of one month, weekday, number or unit, English first. Chinese, Japanese and Korean
have no spaces, so their words are looked up in a run of characters (`UNSPACED`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

_MONTHS = """
january jan januar enero janvier gennaio janeiro januari января январе январь stycznia styczniu ocak
february feb februar febrero fevrier febbraio fevereiro februari февраля феврале февраль lutego lutym subat
march marz marzo mars marco maart марта марте март marca marcu mart
april apr abril avril aprile апреля апреле апрель kwietnia kwietniu nisan
may mai mayo maggio maio mei мая мае май maja maju maj mayis
june jun juni junio juin giugno junho июня июне июнь czerwca czerwcu haziran
july jul juli julio juillet luglio julho июля июле июль lipca lipcu temmuz
august aug agosto aout augustus августа августе август sierpnia sierpniu augusti agustos
september sep sept septiembre septembre settembre setembro сентября сентябре сентябрь wrzesnia wrzesniu eylul
october oct oktober octubre octobre ottobre outubro октября октябре октябрь pazdziernika pazdzierniku ekim
november nov noviembre novembre novembro ноября ноябре ноябрь listopada listopadzie kasim
december dec dezember diciembre decembre dicembre dezembro декабря декабре декабрь grudnia grudniu aralik
"""
_WEEKDAYS = """
monday mon montag lunes lundi lunedi maandag mandag понедельник poniedzialek pazartesi
tuesday tue tues dienstag martes mardi martedi dinsdag tisdag вторник wtorek sali
wednesday wed mittwoch miercoles mercredi mercoledi woensdag onsdag среда среду sroda srode carsamba
thursday thu thur thurs donnerstag jueves jeudi giovedi donderdag torsdag четверг czwartek persembe
friday fri freitag viernes vendredi venerdi vrijdag fredag пятница пятницу piatek cuma
saturday sat samstag sonnabend sabado samedi sabato zaterdag lordag суббота субботу sobota sobote cumartesi
sunday sun sonntag domingo dimanche domenica zondag sondag воскресенье niedziela niedziele pazar
"""
_NUMBERS = """
a an one ein eine einem einer einen un una une uno een один одну en ett jeden jedna bir um uma satu mot
two couple zwei dos deux due dois duas twee два две tva dwa dwie iki dua hai
three few several drei tres trois tre drie три trzy uc tiga ba
four vier cuatro quatre quattro quatro четыре fyra cztery dort empat bon
five funf cinco cinq cinque vijf пять fem piec bes lima
six sechs seis sei zes шесть sex szesc alti enam sau
seven sieben siete sept sette sete zeven семь sju siedem yedi tujuh
eight acht ocho huit otto oito восемь atta osiem sekiz delapan
nine neun nueve neuf nove negen девять nio dziewiec dokuz sembilan
ten zehn diez dix dieci dez tien десять tio dziesiec sepuluh
"""
_UNITS = """
minute minutes min mins minuten minuto minutos minuti minuut минуту минуты минут minuter minut minuty dakika menit
hour hours hr hrs stunde stunden hora horas heure heures ora ore uur uren час часа часов timme timmar godzine \
godziny saat jam
day days tag tagen tage dia dias jour jours giorno giorni dag dagen день дня дней dagar dni dzien gun hari ngay
week weeks woche wochen semana semanas semaine semaines settimana settimane weken неделю недели недель vecka \
veckor tydzien tygodnie tygodni hafta minggu tuan
month months monat monaten monate mes meses mois mese mesi maand maanden месяц месяца месяцев manad manader \
miesiac miesiace miesiecy ay bulan thang
quarter quarters quartal quartale trimestre trimestres kwartaal квартал
year years jahr jahren jahre ano anos an ans anno anni jaar jaren год года лет ar rok lata lat yil tahun nam
"""
UNIT_NAMES = "minute hour day week month quarter year".split()


_ENGLISH = """
jan feb apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun an one couple few \
several days
weeks months quarters years minutes hours min mins hr hrs of ago earlier back last past previous next coming \
this in the
first second third fourth day after before week
"""


def _numbered(lines: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(lines.strip().split("\n")):
        yield from ((word, number) for word in line.split())


MONTHS = {word: number + 1 for word, number in _numbered(_MONTHS)}
WEEKDAYS = dict(_numbered(_WEEKDAYS))
NUMBERS = {word: number + 1 for word, number in _numbered(_NUMBERS)}
UNITS = {word: UNIT_NAMES[number] for word, number in _numbered(_UNITS)}

AMBIGUOUS = frozenset(
    "may march mars mar mai mei jan jun jul sep sept dec marco mart marca marcu maja maju nisan ekim ocak".split()
)
"""Months that are also other words. They count only if a word beside them shows that they are a date."""
SHORT_WEEKDAYS = frozenset("mon tue tues wed thu thur thurs fri sat sun sali pazar sexta среда".split())
"""Weekdays that are also other words. They count only after a word such as "on"."""

IN = frozenset(
    """
    in during since until before after around by early late mid last next this past from im seit ende anfang letzten en
    desde durante depuis debut fin nel a em vorige vom od w в с до
    """.split()
)
OF = frozenset("of de del do".split())
AGO_AFTER = frozenset("ago earlier back fa atras geleden назад sedan temu lalu truoc".split())
AGO_BEFORE = frozenset("vor hace ha".split())
AHEAD = frozenset("in dans tra fra om через za".split())
"""Words before a number of units from now: "in 3 days"."""
LAST = frozenset(
    """
    last past previous letzten vergangenen ultimos ultimas derniers dernieres ultimi ultime afgelopen laatste senaste
    последние ostatnie ostatnich
    """.split()
)
NEXT = frozenset("next coming nachsten kommenden proximos prochains prossimi volgende komende".split())
LAST_DAY = frozenset(
    """
    last past previous letzten letzter vergangenen pasado dernier scorso scorsa vorige afgelopen passado passada прошлый
    прошлую forra ostatni zeszly zeszla gecen
    """.split()
)
NEXT_DAY = frozenset(
    """
    next coming nachsten kommenden proximo proxima prochain prossimo prossima volgende komende следующий следующую nasta
    przyszly nastepny gelecek
    """.split()
)
THIS = frozenset("this diesen este ce questo deze этот".split())
ON = frozenset("on last next this past am letzten vergangenen el le il в".split())
"""Words before a short weekday that show that it is one."""
ARTICLES = frozenset("the den dem der el la le il lo de het den".split())
WEEK_OF = frozenset("of vom von des del du da van".split())
GERMAN = frozenset("was ist das der die den wer wie wo ich wir es gibt sind und nicht ein eine war steht".split())
"""Words beside "hier" that show that it is German for here, not French for yesterday."""
GREETINGS = frozenset("guten goede god".split())

_RELATIVE = {
    ("day", 0): (
        "today|heute|hoy|aujourd hui|oggi|hoje|vandaag|сегодня|idag|i dag|dzisiaj|dzis|bugun|hari ini|hom nay|اليوم|आज"
    ),
    ("day", -1): ("yesterday|gestern|ayer|hier|ieri|ontem|gisteren|вчера|igar|i gar|wczoraj|kemarin|hom qua|أمس|امس"),
    ("day", -2): (
        "day before yesterday|vorgestern|anteayer|antes de ayer|avant hier|l altro ieri|altro ieri|anteontem|"
        "eergisteren|"
        "позавчера|i forrgar|przedwczoraj|kemarin dulu"
    ),
    ("day", 1): "tomorrow|morgen|manana|demain|domani|amanha|завтра|imorgon|i morgon|jutro|yarin|besok",
    ("day", 2): "day after tomorrow|ubermorgen|pasado manana|apres demain|dopodomani|overmorgen|послезавтра|pojutrze",
    ("morning", 0): (
        "this morning|heute morgen|heute fruh|esta manana|ce matin|stamattina|questa mattina|vanmorgen|vanochtend|"
        "сегодня утром"
    ),
    ("afternoon", 0): "this afternoon|heute nachmittag|esta tarde|cet apres midi|questo pomeriggio|vanmiddag",
    ("evening", 0): "this evening|heute abend|ce soir|stasera|questa sera|vanavond|сегодня вечером",
    ("night", 0): "tonight|heute nacht|esta noche|cette nuit|stanotte|vannacht",
    ("night", -1): "last night|gestern nacht|anoche|la nuit derniere|ieri notte|ontem a noite|прошлой ночью",
    ("week", 0): (
        "this week|diese woche|dieser woche|esta semana|cette semaine|questa settimana|deze week|этой неделе|"
        "denna vecka|"
        "w tym tygodniu|bu hafta|minggu ini"
    ),
    ("week", -1): (
        "last week|previous week|letzte woche|letzter woche|semana pasada|semaine derniere|"
        "settimana scorsa|semana passada|vorige week|прошлой неделе|forra veckan|zeszlym tygodniu|gecen hafta|"
        "minggu lalu"
    ),
    ("week", -2): "week before last|vorletzte woche|vorletzter woche",
    ("week", 1): (
        "next week|nachste woche|nachster woche|proxima semana|semana que viene|semaine prochaine|settimana prossima|"
        "volgende week|следующей неделе"
    ),
    ("weekend", 0): "this weekend|dieses wochenende|este fin de semana|ce week end|questo fine settimana|dit weekend",
    ("weekend", -1): (
        "last weekend|letztes wochenende|fin de semana pasado|week end dernier|fine settimana scorso|vorig weekend"
    ),
    ("weekend", 1): "next weekend|nachstes wochenende|proximo fin de semana|week end prochain|volgend weekend",
    ("month", 0): (
        "this month|diesen monat|diesem monat|este mes|ce mois ci|ce mois|questo mese|deze maand|этом месяце|"
        "bu ay|bulan ini"
    ),
    ("month", -1): (
        "last month|previous month|letzten monat|letztem monat|letzter monat|mes pasado|mois dernier|mese scorso|"
        "mes passado|vorige maand|прошлом месяце|forra manaden|zeszlym miesiacu|gecen ay|bulan lalu"
    ),
    ("month", -2): "month before last|vorletzten monat",
    ("month", 1): (
        "next month|nachsten monat|proximo mes|mes que viene|mois prochain|mese prossimo|volgende maand|"
        "следующем месяце"
    ),
    ("quarter", 0): "this quarter|dieses quartal|diesem quartal|este trimestre|ce trimestre|dit kwartaal",
    ("quarter", -1): (
        "last quarter|previous quarter|letztes quartal|letztem quartal|trimestre pasado|trimestre dernier|"
        "vorig kwartaal"
    ),
    ("quarter", 1): "next quarter|nachstes quartal|proximo trimestre|trimestre prochain|volgend kwartaal",
    (
        "year",
        0,
    ): "this year|dieses jahr|diesem jahr|este ano|cette annee|quest anno|dit jaar|этом году|i ar|w tym roku|bu yil",
    ("year", -1): (
        "last year|previous year|letztes jahr|letztem jahr|ano pasado|annee derniere|l an dernier|anno scorso|"
        "ano passado|vorig jaar|прошлом году|forra aret|zeszlym roku|gecen yil|tahun lalu"
    ),
    ("year", -2): "year before last|vorletztes jahr",
    ("year", 1): "next year|nachstes jahr|proximo ano|annee prochaine|anno prossimo|volgend jaar|следующем году",
}
RELATIVE = {tuple(phrase.split()): offset for offset, phrases in _RELATIVE.items() for phrase in phrases.split("|")}
"""Phrases for a period relative to today, as a unit and the number of units from now."""
TELLING = frozenset((*MONTHS, *WEEKDAYS, *UNITS, *(phrase[-1] for phrase in RELATIVE)))
"""Every time expression in a script with spaces has one of these words, or a digit."""

_PARTS = {
    "morning": "morning|morgen|fruh|vormittag|por la manana|matin|mattina|de manha|ochtend|утром|morgon|rano",
    "afternoon": "afternoon|nachmittag|por la tarde|apres midi|pomeriggio|a tarde|middag|днем|eftermiddag",
    "evening": "evening|abend|soir|sera|avond|вечером|kvall|wieczorem",
    "night": "night|nacht|por la noche|nuit|notte|a noite|ночью|natt",
}
PARTS = {tuple(phrase.split()): part for part, phrases in _PARTS.items() for phrase in phrases.split("|")}
"""Phrases for a part of a day, after the day: "yesterday morning"."""
PART_HOURS = {"morning": (0, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 30)}
"""Hours from midnight. The small hours of a day belong to its morning, and to the night before."""

ORDINALS = {
    **dict.fromkeys("first 1st erstes ersten primer premier primo".split(), 1),
    **dict.fromkeys("second 2nd zweites zweiten segundo deuxieme secondo".split(), 2),
    **dict.fromkeys("third 3rd drittes dritten tercer troisieme terzo".split(), 3),
    **dict.fromkeys("fourth 4th viertes vierten cuarto quatrieme quarto".split(), 4),
}
CALENDAR_WEEK = (("kw",), ("calendar", "week"), ("iso", "week"), ("kalenderwoche",), ("cw",))

_UNSPACED_RELATIVE = {
    ("day", 0): "今天 今日 오늘",
    ("day", -1): "昨天 昨日 어제",
    ("day", -2): "前天 一昨日 おととい 그저께 그제",
    ("day", 1): "明天 明日 내일",
    ("day", 2): "后天 後天 明後日 모레",
    ("morning", 0): "今早 今天早上 今天上午 今朝",
    ("afternoon", 0): "今天下午 今日の午後",
    ("evening", 0): "今晚 今天晚上 今晩 今夜",
    ("night", -1): "昨晚 昨夜 昨晩 어젯밤",
    ("week", 0): "这周 這週 本周 这星期 今週 이번주",
    ("week", -1): "上周 上週 上星期 上个星期 先週 지난주",
    ("week", 1): "下周 下週 下星期 来週 다음주",
    ("weekend", 0): "这周末 本周末 今週末",
    ("weekend", -1): "上周末 先週末 지난주말",
    ("month", 0): "这个月 這個月 本月 今月 이번달",
    ("month", -1): "上个月 上個月 先月 지난달",
    ("month", 1): "下个月 来月 다음달",
    ("year", 0): "今年 올해",
    ("year", -1): "去年 昨年 작년 지난해",
    ("year", -2): "前年 一昨年",
    ("year", 1): "明年 来年 내년",
}
_UNSPACED_WEEKDAYS = (
    "一 月曜 월요일|二 火曜 화요일|三 水曜 수요일|四 木曜 목요일|五 金曜 금요일|六 土曜 토요일|日 日曜 일요일"
)
_ZH_WEEK = {
    "周": None,
    "星期": None,
    "礼拜": None,
    "上周": -1,
    "上星期": -1,
    "这周": 0,
    "本周": 0,
    "下周": 1,
    "下星期": 1,
}


@cache
def english_words() -> frozenset[str]:
    """Return the English words of time expressions: in other languages, other small words are around them."""
    lines = f"{_MONTHS}\n{_WEEKDAYS}\n{_NUMBERS}\n{_UNITS}".split("\n")
    first = [line.split()[0] for line in lines if line]
    phrases = [phrases.partition("|")[0] for phrases in (*_RELATIVE.values(), *_PARTS.values())]
    return frozenset(" ".join((*first, *phrases, _ENGLISH)).split())


@cache
def unspaced_relative() -> dict[str, tuple[str, int]]:
    """Return the phrases of scripts without spaces, as `RELATIVE` has those of others."""
    return {phrase: offset for offset, phrases in _UNSPACED_RELATIVE.items() for phrase in phrases.split()}


@cache
def unspaced_weekdays() -> dict[str, tuple[int, int | None]]:
    """Return weekdays of scripts without spaces, with the week from now that some of them name."""
    words: dict[str, tuple[int, int | None]] = {}
    for number, names in enumerate(_UNSPACED_WEEKDAYS.split("|")):
        chinese, japanese, korean = names.split()
        words.update((prefix + chinese, (number, week)) for prefix, week in _ZH_WEEK.items())
        words.update({japanese: (number, None), f"{japanese}日": (number, None), korean: (number, None)})
    words.update({prefix + "天": (6, week) for prefix, week in _ZH_WEEK.items() if prefix[-1:] != "周"})
    return words
