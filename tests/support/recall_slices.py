"""Small sets of notes and questions of many kinds, to compare ways of searching."""

from __future__ import annotations

from kept.bench.dataset import BenchDocument, BenchQuery, BenchSet

NotesAndQuestions = tuple[tuple[str, str], ...]
"""A note, and a question that it answers; "" for a note that is only in the way."""

PARAPHRASED: NotesAndQuestions = (
    ("# Deploys\nWe roll out on Tuesdays only, after the smoke run is green.", "which weekday do releases go live"),
    ("# Sessions\nLogin tokens expire after 20 minutes of inactivity.", "how long until a user is signed out"),
    ("# Storage\nInvoices are kept for ten years because of the tax office.", "retention of bills"),
    ("# Latency\nThe checkout page got slow when the cache was switched off.", "why was paying sluggish"),
    ("# Hiring\nMara starts in the platform team in June.", "new colleague joining in summer"),
    ("# Backups\nThe nightly dump goes to a bucket in Frankfurt.", "where do we save copies of the database"),
    ("# Mail\nNewsletters leave through the relay at the old provider.", "who sends our bulk messages"),
    ("# Search\nPostgres full text was too weak for German compounds.", "reason we dropped the built-in text search"),
    ("# Keys\nRotate the signing certificate every ninety days.", "how often to renew the cert"),
    ("# Offsite\nThe autumn meeting is in a hut near Bern.", "location of the team retreat"),
    ("# Money\nThe cloud budget is 4,000 francs a month.", "how much may hosting cost"),
    ("# Phones\nOnly two people answer calls at the weekend.", "on-call staff on Saturday and Sunday"),
    ("# Retries\nA failed webhook is tried five times, with growing pauses.", "what happens if a callback fails"),
    ("# Colours\nThe accent is teal since the last redesign.", ""),
    ("# Printer\nThe printer on the second floor needs a new drum.", ""),
    ("# Plants\nWater the ferns twice a week.", ""),
    ("# Coffee\nBeans come from the roastery on the corner.", ""),
    ("# Bikes\nThe shed has room for twelve bikes.", ""),
)
TITLES: NotesAndQuestions = tuple(
    (f"# {title}\n{body}", title)
    for title, body in (
        ("Undo the last commit", "Use reset with soft, so that the changes stay in the index."),
        ("List open ports", "The tool ss shows listening sockets with their processes."),
        ("Rename a branch", "Use branch -m, then push and delete the old name."),
        ("Count lines in files", "Pipe the list of files into wc and read the last row."),
        ("Show disk usage", "du with a depth of one, sorted by size."),
        ("Find large files", "find with a size, then list them by bytes."),
        ("Kill a process by port", "Look up the process with lsof, then send it a signal."),
        ("Copy files over ssh", "rsync resumes and keeps the dates; scp does not."),
        ("Follow a log file", "tail with the flag for rotated files."),
        ("Commit part of a file", "add with patch asks for each hunk."),
    )
)
NAMES: NotesAndQuestions = tuple(
    (f"{name} likes {first}, {second} and {third}.", f"who likes {first} and {third}")
    for name, first, second, third in (
        ("Ada Brown", "mangoes", "chess", "storms"),
        ("Ben Stone", "mangoes", "sailing", "jazz"),
        ("Cleo Marsh", "chess", "jazz", "radishes"),
        ("Dan Frost", "storms", "radishes", "kites"),
        ("Eva Lind", "kites", "mangoes", "opera"),
        ("Finn Wood", "opera", "chess", "marbles"),
        ("Gail Ross", "marbles", "sailing", "storms"),
        ("Hugo West", "jazz", "marbles", "cheese"),
        ("Ines Field", "cheese", "opera", "kites"),
        ("Jon Hale", "sailing", "cheese", "radishes"),
    )
)
GERMAN: NotesAndQuestions = (
    ("Der Zahnarzttermin ist am Freitag um neun Uhr.", "wann muss ich zum Zahnarzt"),
    ("Das Passwort des Routers klebt unter dem Gerät.", "wo steht das Router-Passwort"),
    ("Die Miete steigt im Januar auf 1450 Franken.", "wie hoch ist die Miete ab Januar"),
    ("Oma hat am dritten Mai Geburtstag.", "wann hat Oma Geburtstag"),
    ("Die Heizung wurde im Herbst von Firma Keller gewartet.", "wer hat die Heizung gewartet"),
    ("Für den Kuchen braucht es sechs Eier und Rahm.", "welche Zutaten hat der Kuchen"),
    ("Der Schlüssel zum Keller hängt neben der Tür.", "wo ist der Kellerschlüssel"),
    ("Im Urlaub fahren wir mit dem Nachtzug nach Wien.", "wohin fahren wir in den Ferien"),
)
CHINESE: NotesAndQuestions = (
    ("牙医预约在星期五上午九点。", "什么时候看牙医"),
    ("路由器的密码贴在设备下面。", "路由器密码在哪里"),
    ("一月起房租涨到一千四百五十法郎。", "房租是多少"),
    ("奶奶的生日是五月三日。", "奶奶什么时候过生日"),
    ("暖气在秋天由凯勒公司检修。", "谁检修了暖气"),
    ("做蛋糕需要六个鸡蛋和奶油。", "蛋糕需要几个鸡蛋"),
    ("地下室的钥匙挂在门旁边。", "地下室钥匙挂在哪里"),
    ("假期我们坐夜班火车去维也纳。", "假期坐什么火车"),
)
THAI: NotesAndQuestions = (
    ("นัดหมอฟันวันศุกร์เก้าโมงเช้า", "นัดหมอฟันวันไหน"),
    ("รหัสผ่านของเราเตอร์ติดอยู่ใต้เครื่อง", "รหัสผ่านเราเตอร์อยู่ที่ไหน"),
    ("ค่าเช่าจะขึ้นเป็นหนึ่งพันสี่ร้อยในเดือนมกราคม", "ค่าเช่าเดือนมกราคมเท่าไร"),
    ("วันเกิดของคุณยายคือวันที่สามพฤษภาคม", "วันเกิดคุณยายวันไหน"),
    ("กุญแจห้องใต้ดินแขวนอยู่ข้างประตู", "กุญแจห้องใต้ดินอยู่ที่ไหน"),
    ("วันหยุดเราจะนั่งรถไฟไปเวียนนา", "วันหยุดนั่งรถไฟไปไหน"),
)
ACROSS_LANGUAGES: NotesAndQuestions = (
    ("Postgres listens on port 5433 on the staging machine.", "Auf welchem Port läuft Postgres?"),
    ("The Telegram bot of Ines sends the weekly report.", "¿Qué envía el bot de Telegram de Ines?"),
    ("Miller GmbH repaired the roof in April.", "Wann hat Miller GmbH das Dach repariert?"),
    ("The flight LX318 to London leaves at 07:15.", "LX318 几点起飞"),
    ("Grafana shows the errors of the gateway.", "Que montre Grafana ?"),
    ("The Zurich office has a new address.", "Wie lautet die Adresse in Zurich?"),
    ("Buy bread and milk.", ""),
    ("The meeting was moved to noon.", ""),
)
CHAT: tuple[tuple[str, str, str], ...] = (
    ("Ana", "I finally adopted a dog from the shelter!", "what did Ana get from the shelter"),
    ("Ben", "Oh nice, what is it called?", ""),
    ("Ana", "Pepper. She is afraid of thunder, though.", "what is the dog of Ana scared of"),
    ("Ben", "Mine hides in the bathtub when it storms.", "where does Ben's dog go in bad weather"),
    ("Ana", "How was your trip to the lake?", ""),
    ("Ben", "Cold! But we saw an otter on the second day.", "which animal did Ben see at the lake"),
    ("Ana", "I would love to go there in summer.", ""),
    ("Ben", "We rent a cabin from my uncle, I can ask him.", "whose cabin is it"),
    ("Ana", "Please do. I start my new job in August.", "when does Ana begin her new position"),
    ("Ben", "As a nurse?", ""),
    ("Ana", "Yes, in the children's hospital.", "where will Ana work"),
    ("Ben", "My sister Lea works there as well, in radiology.", "what does Lea do"),
)


def make_set(name: str, notes: NotesAndQuestions) -> BenchSet:
    documents = tuple(BenchDocument(f"d{at}", note) for at, (note, _) in enumerate(notes))
    queries = tuple(BenchQuery(f"q{at}", question) for at, (_, question) in enumerate(notes) if question)
    return BenchSet(name, documents, queries, {query.id: {f"d{query.id[1:]}": 1.0} for query in queries})


def make_chat() -> BenchSet:
    lines = enumerate(CHAT)
    documents = tuple(BenchDocument(f"d{at}", text, session="s", speaker=name) for at, (name, text, _) in lines)
    queries = tuple(BenchQuery(f"q{at}", question) for at, (_, _, question) in enumerate(CHAT) if question)
    return BenchSet("chat", documents, queries, {query.id: {f"d{query.id[1:]}": 1.0} for query in queries})


SLICES = (
    make_set("paraphrased", PARAPHRASED),
    make_set("titles", TITLES),
    make_set("names", NAMES),
    make_set("german", GERMAN),
    make_set("chinese", CHINESE),
    make_set("thai", THAI),
    make_set("across languages", ACROSS_LANGUAGES),
    make_chat(),
)
