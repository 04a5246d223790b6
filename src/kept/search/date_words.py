"""Words for dates and periods in a few languages, as words are indexed: lower case, without accents.

Each line of a list holds the words of one month, weekday, number or unit.
"""

from __future__ import annotations

from collections.abc import Iterator

_MONTHS = """
january jan januar enero janvier gennaio janeiro januari января январе
february feb februar febrero fevrier febbraio fevereiro februari февраля феврале
march marz marzo mars marco maart марта марте
april apr abril avril aprile апреля апреле
may mai mayo maggio maio mei мая мае
june jun juni junio juin giugno junho июня июне
july jul juli julio juillet luglio julho июля июле
august aug agosto aout augustus августа августе
september sep sept septiembre septembre settembre setembro сентября сентябре
october oct oktober octubre octobre ottobre outubro октября октябре
november nov noviembre novembre novembro ноября ноябре
december dec dezember diciembre decembre dicembre dezembro декабря декабре
"""
_WEEKDAYS = """
monday mon montag lunes lundi lunedi maandag
tuesday tue dienstag martes mardi martedi dinsdag
wednesday wed mittwoch miercoles mercredi mercoledi woensdag
thursday thu donnerstag jueves jeudi giovedi donderdag
friday fri freitag viernes vendredi venerdi vrijdag
saturday sat samstag sonnabend sabado samedi sabato zaterdag
sunday sun sonntag domingo dimanche domenica zondag
"""
_NUMBERS = """
a an one ein eine einem einer einen un una une uno een один
two couple zwei dos deux due dois duas twee два две
three few several drei tres trois tre drie три
four vier cuatro quatre quattro quatro четыре
five funf cinco cinq cinque vijf пять
six sechs seis sei zes шесть
seven sieben siete sept sette sete zeven семь
eight acht ocho huit otto oito восемь
nine neun nueve neuf nove negen девять
ten zehn diez dix dieci dez tien десять
"""
_UNITS = """
day days tag tagen tage dia dias jour jours giorno giorni dag dagen день дня дней
week weeks woche wochen semana semanas semaine semaines settimana settimane weken неделю недели недель
month months monat monaten monate mes meses mois mese mesi maand maanden месяц месяца месяцев
year years jahr jahren jahre ano anos an ans anno anni jaar jaren год года лет
"""


def _numbered(lines: str) -> Iterator[tuple[str, int]]:
    for number, line in enumerate(lines.strip().split("\n")):
        yield from ((word, number) for word in line.split())


MONTHS = {word: number + 1 for word, number in _numbered(_MONTHS)}
WEEKDAYS = dict(_numbered(_WEEKDAYS))
NUMBERS = {word: number + 1 for word, number in _numbered(_NUMBERS)}
UNITS = {word: "day week month year".split()[number] for word, number in _numbered(_UNITS)}

AMBIGUOUS = frozenset("may march mars mar mai mei jan jun jul sep sept dec mon wed sat sun marco".split())
"""Words that also have another meaning. They count only if a word beside them shows that they are a date."""

IN = frozenset(
    """
    in during since until before after around by early late mid last this past im seit ende anfang letzten en desde
    durante depuis debut fin nel a em vorige в с до
    """.split()
)
OF = frozenset("of de del do".split())
AGO_AFTER = frozenset("ago earlier fa atras geleden назад".split())
AGO_BEFORE = frozenset("vor hace ha".split())
LAST = frozenset(
    "last past previous letzten vergangenen ultimos ultimas derniers dernieres ultimi ultime afgelopen".split()
)
ON = frozenset("on last this past am letzten vergangenen el le il".split())

_RELATIVE = {
    ("day", 0): "today|tonight|this morning|this evening|heute|hoy|aujourd hui|oggi|hoje|vandaag|сегодня|今天|今日",
    ("day", -1): "yesterday|last night|gestern|ayer|anoche|hier soir|ieri|ontem|gisteren|вчера|昨天|昨日",
    ("day", -2): "day before yesterday|vorgestern|anteayer|avant hier|eergisteren|позавчера|前天",
    ("week", 0): (
        "this week|diese woche|dieser woche|esta semana|cette semaine|questa settimana|deze week|这周|本周|今週"
    ),
    ("week", -1): (
        "last week|previous week|letzte woche|letzter woche|semana pasada|semaine derniere|"
        "settimana scorsa|semana passada|vorige week|прошлой неделе|上周|上星期|先週"
    ),
    ("weekend", -1): "last weekend|letztes wochenende|fin de semana pasado|week end dernier|上周末|先週末",
    ("month", 0): "this month|diesen monat|diesem monat|este mes|ce mois ci|questo mese|deze maand|这个月|今月",
    ("month", -1): (
        "last month|previous month|letzten monat|letztem monat|mes pasado|mois dernier|mese scorso|"
        "mes passado|vorige maand|прошлом месяце|上个月|先月"
    ),
    ("year", 0): "this year|dieses jahr|diesem jahr|este ano|cette annee|quest anno|dit jaar|今年",
    ("year", -1): (
        "last year|previous year|letztes jahr|letztem jahr|ano pasado|annee derniere|anno scorso|"
        "ano passado|vorig jaar|прошлом году|去年"
    ),
}
RELATIVE = {tuple(phrase.split()): offset for offset, phrases in _RELATIVE.items() for phrase in phrases.split("|")}
"""Phrases for a period relative to today, as a unit and the number of units from now."""
