"""Time expressions with the interval that a person means, said on Wednesday, 18 November 2026, at 10:30.

A line has the first moment of an interval, the first moment after it, and the expressions that mean it. Weeks begin on
Monday.
"""

import datetime as dt

NOW = dt.datetime(2026, 11, 18, 10, 30)

_TABLE = """
2026-11-18 | 2026-11-19 | today; this Wednesday; 18 November; heute; aujourd'hui; hoy; oggi; hoje; сегодня; dzisiaj
2026-11-18 | 2026-11-19 | bugün; 今天
2026-11-17 | 2026-11-18 | yesterday; Yesterday's; a day ago; one day ago; Tuesday; gestern; hier; ayer; ieri; ontem
2026-11-17 | 2026-11-18 | gisteren; вчера; wczoraj; igår; kemarin; 昨天; 昨日; 昨日の会議; 어제
2026-11-16 | 2026-11-17 | the day before yesterday; a couple of days ago; Monday; last Monday; this Monday; vorgestern
2026-11-16 | 2026-11-17 | avant-hier; anteayer; 前天
2026-11-19 | 2026-11-20 | tomorrow; morgen; demain; mañana
2026-11-20 | 2026-11-21 | the day after tomorrow; this Friday
2026-11-18 00:00 | 2026-11-18 12:00 | this morning; heute morgen; ce matin; 今朝
2026-11-18 12:00 | 2026-11-18 18:00 | this afternoon
2026-11-18 18:00 | 2026-11-19 00:00 | this evening
2026-11-18 18:00 | 2026-11-19 06:00 | tonight
2026-11-17 18:00 | 2026-11-18 06:00 | last night; anoche
2026-11-15 | 2026-11-16 | 3 days ago; three days ago; a few days ago; Sunday; on Sun; 3天前; 3日前; 3일 전
2026-11-15 | 2026-11-16 | vor drei Tagen
2026-11-15 | 2026-11-16 | il y a trois jours; hace tres días; tre giorni fa; drie dagen geleden; три дня назад
2026-11-15 | 2026-11-16 | trzy dni temu; för tre dagar sedan
2026-11-08 | 2026-11-09 | ten days ago
2026-08-10 | 2026-08-11 | 100 days ago
2026-11-08 | 2026-11-15 | a week ago
2026-11-01 | 2026-11-08 | 2 weeks ago; two weeks ago; vor zwei Wochen
2026-10-25 | 2026-11-01 | three weeks back
2026-10-03 | 2026-11-03 | a month ago
2026-09-03 | 2026-10-04 | 2 months ago
2025-05-20 | 2026-05-20 | a year ago
2026-11-18 08:00 | 2026-11-18 09:00 | 2 hours ago
2026-11-18 09:00 | 2026-11-18 10:00 | an hour ago
2026-11-18 09:55 | 2026-11-18 10:05 | 30 minutes ago
2026-11-15 | 2026-11-19 | the last 3 days; last three days
2026-11-11 | 2026-11-19 | past 7 days; the past week
2026-11-04 | 2026-11-19 | the last two weeks
2026-10-18 | 2026-11-19 | the past month
2025-11-18 | 2026-11-19 | the past year
2026-05-18 | 2026-11-19 | the last 6 months
2026-11-17 10:30 | 2026-11-19 00:00 | the last 24 hours
2026-11-11 | 2026-11-12 | Wednesday; last Wednesday
2026-11-12 | 2026-11-13 | Thursday; from Thursday; Thursday's; last Thursday; on Thu; Thursday of last week
2026-11-12 | 2026-11-13 | Thursday, 12 November; Thursday the 12th of November; 12 November; November 12
2026-11-12 | 2026-11-13 | November 12th; 12th of November; the 12th of November; Nov 12; 12 Nov; 11月12日
2026-11-12 | 2026-11-13 | letzten Donnerstag; jeudi dernier; le 12 novembre; el jueves pasado; giovedì scorso
2026-11-12 | 2026-11-13 | donderdag; в четверг; 12 ноября; 12 listopada
2026-11-13 | 2026-11-14 | Friday; on Friday; last Fri; am Freitag
2026-11-14 | 2026-11-15 | Saturday; past Saturday
2026-11-23 | 2026-11-24 | next Monday; nächsten Montag; lundi prochain; el próximo lunes
2026-11-25 | 2026-11-26 | next Wednesday
2026-11-22 | 2026-11-23 | next Sunday
2026-11-09 | 2026-11-10 | Monday last week
2026-11-10 | 2026-11-11 | last week on Tuesday
2026-11-27 | 2026-11-28 | Friday next week
2026-11-16 | 2026-11-23 | this week; diese Woche
2026-11-09 | 2026-11-16 | last week; previous week; letzte Woche; la semaine dernière; la semana pasada
2026-11-09 | 2026-11-16 | la settimana scorsa; na semana passada; vorige week; на прошлой неделе; w zeszłym tygodniu
2026-11-09 | 2026-11-16 | geçen hafta; 上周; 先週; 지난주
2026-11-23 | 2026-11-30 | next week; nächste Woche
2026-11-02 | 2026-11-09 | the week before last
2026-11-21 | 2026-11-23 | this weekend
2026-11-14 | 2026-11-16 | last weekend
2026-11-28 | 2026-11-30 | next weekend
2026-11-01 | 2026-12-01 | this month; November
2026-10-01 | 2026-11-01 | last month; letzten Monat; le mois dernier; 上个月
2026-12-01 | 2027-01-01 | next month
2026-09-01 | 2026-10-01 | the month before last
2026-01-01 | 2027-01-01 | this year
2025-01-01 | 2026-01-01 | last year; letztes Jahr; 去年
2027-01-01 | 2028-01-01 | next year
2024-01-01 | 2025-01-01 | the year before last; in 2024; 2024年
2019-01-01 | 2020-01-01 | from 2019
2026-03-01 | 2026-04-01 | in March
2026-05-01 | 2026-06-01 | in may; May
2025-12-01 | 2026-01-01 | December; last December; 12月
2025-11-01 | 2025-12-01 | last November
2024-03-01 | 2024-04-01 | March 2024; 2024-03; 2024年3月
2026-01-01 | 2026-02-01 | early January
2025-03-01 | 2025-04-01 | March last year
2025-10-01 | 2025-11-01 | October of last year
2025-11-19 | 2025-11-20 | 19 November
2025-12-24 | 2025-12-25 | 24 December
2024-02-29 | 2024-03-01 | 29 February
2023-05-03 | 2023-05-04 | 3 May 2023; May 3, 2023; May 3rd 2023; the 3rd of May, 2023; el 3 de mayo de 2023
2023-10-13 | 2023-10-14 | October 13, 2023
2025-11-12 | 2025-11-13 | 12 November last year
2024-01-15 | 2024-01-16 | 2024-01-15; 2024/01/15; 2024.01.15; 15.01.2024; 15. 1. 2024; 01/15/2024; 15/01/2024
2024-01-15 | 2024-01-16 | 15-01-2024
2024-01-05 | 2024-01-06 | 2024/1/5; 5.1.2024
2024-05-05 | 2024-05-06 | 05/05/2024
2024-03-03 | 2024-03-04 | 2024年3月3日; 2024 年 3 月 3 日; 2024년 3월 3일
2026-03-03 | 2026-03-04 | 3月3日; am 3. März
2023-03-03 | 2023-03-04 | am 3. März 2023
2024-08-01 | 2024-08-02 | 1er août 2024
"""

TIME_EXPRESSIONS = [
    (expression, dt.datetime.fromisoformat(start.strip()), dt.datetime.fromisoformat(end.strip()))
    for start, end, expressions in (line.split(" | ") for line in _TABLE.strip().splitlines())
    for expression in expressions.split("; ")
]
