"""Stopwords: words that carry no information about what a query looks for.

They are dropped from a query unless nothing else is left. They depend on the language: "die" is an article in German
and a verb in English. So a query is taken to be in the language most of whose stopwords it has. English is the default:
another language needs at least two of its stopwords in the query, and more of them than English has.

The lists hold articles, pronouns, prepositions and question words, as words are indexed: lower case, without accents.
A word that is a stopword in one language and carries meaning in another is listed all the same, because a list counts
only for a query in its language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from kept.words.segment import fold, is_unspaced, normalise

_ENOUGH = 2
"""Stopwords of another language that a query needs to be taken for that language."""

_SMALL = frozenset(
    """
    a about above after again all also am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for
    from further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd
    i'll i'm i've if in into is isn't it it's its itself just let's me more most my myself no nor not of off on
    once only or other our ours ourselves out over own please same shall she should shouldn't so some such tell
    than that that's the their theirs them themselves then there there's these they they're this those through
    to too under until up upon us very was wasn't we we'd we're we've were weren't what what's when where
    where's which while who who's whom whose why will with won't would wouldn't you you'd you'll you're you've
    your yours yourself yourselves
    """.split()
)

_ASKING = frozenset(
    """
    actually afaik anybody anyone anything anyway basically cant didnt doesnt dont else ever forget forgot forgotten
    gonna guess hello hey hi honestly iirc im isnt ive kinda knew know lets literally maybe ok okay perhaps pretty
    probably really recall remember remembers somebody somehow someone something somewhere stuff supposed sure theres
    think though thought vaguely wasnt whatever whats wonder wondering yeah
    """.split()
)
"""Words around a question: "pretty sure someone decided something about this". Notes seldom have these words, so each
would count for much in the few passages that have it."""
ENGLISH = _SMALL | _ASKING

_SPACED = {
    "de": """
        aber alle allem allen aller alles als also am an auch auf aus bei beim bin bis bist da damit dann das
        dass dein deine dem den denn der des dessen dich die dies diese diesem diesen dieser dieses dir doch
        dort du durch ein eine einem einen einer eines er es etwas euch euer fur gegen gibt hab habe haben hat
        hatte hatten hier hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in ins ist ja jede jeder jedes
        kann kein keine konnen mal man mehr mein meine meinem meinen meiner mich mir mit nach nicht noch nun nur
        ob oder ohne schon sehr sein seine seinem seinen seiner sich sie sind so soll uber um und uns unser
        unsere unter vom von vor war waren warum was wann weil welche welchem welchen welcher welches wem wen
        wenn wer werden wie wieder wieviel wir wird wo woher wohin wurde wurden zu zum zur zwischen
        """,
    "nl": """
        aan al alle als bij ben dan dat de den der deze die dit doen door dus een en er ge geen geweest haar had
        heb hebben heeft hem het hier hij hoe hoeveel hun iets ik in is ja je jij jullie kan kon kunnen maar me
        meer men met mij mijn moet na naar niet niets nog nu of om omdat ons onze ook op over te tegen toch toen
        tot u uit uw van veel voor waar waarom wanneer was wat we welk welke werd wie wij wil worden wordt ze
        zich zij zijn zo zonder zou
        """,
    "sv": """
        alla allt an ar att av blev bli blir da de dem den denna deras dess dessa det detta dig din dina du efter
        ej eller en er ett fran for ha hade han hans har henne hennes hon honom hur i icke ingen inte jag ju kan
        kunde man med mellan men mig min mina mitt mot mycket nar nagon nagot ni nu och om oss pa sa samma sedan
        sig sin sina sitt skulle som till under upp ut utan vad var vara varfor varit varje vart vem vi vid
        vilka vilken vilket
        """,
    "es": """
        a al algo ante antes aquel aquella como con contra cual cuales cuando cuanto cuantos de del desde donde
        durante e el ella ellas ellos en entre era eran es esa esas ese eso esos esta estaba estado estan estas
        este esto estos estoy fue fueron ha habia han has hasta hay he la las le les lo los mas me mi mis mucho
        muy nada ni no nos nosotros o os otra otro para pero poco por porque que quien quienes se ser si sin
        sobre son soy su sus tambien tanto te tiene tienen todo todos tu tus un una uno unos y ya yo
        """,
    "pt": """
        a ao aos aquela aquele aquilo as ate com como da das de dela dele deles depois do dos e ela elas ele
        eles em entre era essa esse esta estao estas estava este estou eu foi foram ha isso isto ja la lhe mais
        mas me mesmo meu meus minha muito na nao nas nem no nos nossa nosso num numa o onde os ou para pela
        pelas pelo pelos por porque qual quais quando quanto quantos que quem sao se sem ser seu seus so sua
        suas tambem te tem tinha tu tua um uma umas uns voce voces
        """,
    "fr": """
        a ai au aux avec avait avez ce ces cet cette c combien comme comment d dans de des donc du elle elles en
        es est et etait ete etre eu eux fait il ils j je l la le les leur leurs lui m ma mais me meme mes moi
        mon n ne nos notre nous on ont ou par pas plus pour pourquoi qu quand que quel quelle quelles quels qui
        quoi s sa sans se ses si son sont suis sur t ta te tes toi ton tres tu un une vos votre vous y
        """,
    "it": """
        a agli ai al alla alle allo anche avere aveva c che chi ci come con cosa da dagli dai dal dalla de degli
        dei del della delle dello di dove e ed era essere fu gli ha hanno ho i il in io l la le lei li lo loro
        lui ma mi mia mie mio nei nel nella nelle no noi non nostra nostro o ogni per perche piu qual quale
        quali quando quanto quanti quella quello questa queste questi questo se sei si sia sono su sua sue sui
        sul sulla suo ti tra tu tua tuo un una uno vi voi
        """,
    "pl": """
        a ale albo bardzo bez bo by byc byl byla byli bylo co czy dla do gdy gdzie go i ich ile im ja jak jaka
        jakie jaki jako je jego jej jest jestem jeszcze juz kiedy kto ktora ktore ktory ma mam mi mnie moj moja
        moje my na nad nas nasz nie nim o od on ona one oni oraz po pod przed przez przy sa sie skad swoj ta tak
        takze tam te tego tej ten to tu ty tylko tym u w we wiec wy z za ze zeby
        """,
    "tr": """
        acaba ama ancak bana bazi ben beni benim bir biz bize bu buna bunu bunun cok cunku da daha de defa degil
        diye en gibi hangi hem hep her hic icin ile ise kac kadar kendi ki kim kimin mi mu nasil ne neden nedir
        nerede nereye nicin niye o olan olarak oldu olur ona onlar onu onun sen senin siz sizin su tum ve veya
        ya yani
        """,
    "id": """
        ada adalah agar akan aku anda antara apa apakah atas atau bagaimana bagi bahwa beberapa berapa bisa
        bukan dalam dan dari dengan di dia dimana hanya harus ia ingin ini itu juga kalau kami kamu kapan karena
        ke kepada kita lagi lebih maka mana masih mengapa mereka milik namun nya oleh pada para saat saja sampai
        sangat saya sebagai secara sedang seperti siapa suatu sudah tapi telah tentang tersebut tidak untuk yang
        """,
    "vi": """
        ai anh bao bi boi cac cai can cho chung co con cua cung da dang dau day de den di do duoc em gi hay khi
        khong la lai lam len luc ma minh mot nao nay nen neu nguoi nhu nhung noi o phai qua ra rang rat sao se
        ta tai the thi tren trong tu tung va van vao ve vi voi
        """,
    "ru": """
        а без бы был была были было быть в вам вас ваш весь во вот все всего всех вы где да даже для до его ее
        если есть еще же за зачем и из или им их к как какая какие какое какой когда ко которая которые который
        кто ли мне мной мои мой моя мы на над нам нас наш не него нее нет ни них но ну о об он она они оно от
        откуда по под почему при про с сам свой свою себе себя со сколько та так такой там те тебе тебя то того
        тоже той только том ты у уже чего чей чем что чтобы эта эти это этого этой этом этот я
        """,
    "ar": """
        أن إن أنا أنت انه إلى الى أو أي اي أين اين التي الذي الذين الا اذا إذا بعد بين به بها تم ثم حتى حول حيث
        دون ذلك رغم سوف عن عند على عليه عليها غير فقط في فيه فيها قبل قد كان كانت كل كم كما كيف لا لقد لكن لم
        لماذا لن له لها ليس ما ماذا متى مع من منذ منه منها نحن هذا هذه هل هم هن هو هي هناك هنا وقد وهو وهي يا
        يكون
        """,
    "hi": """
        अपना अपनी अपने आप इस इसका इसकी इसके इसे उस उसका उसकी उसके उसे उन उनका उनकी उनके एक एवं ऐसा ऐसे और कई कब
        कर करता करते करना करने का कि कितना कितनी कितने किया किस किसी की कुछ के को कोई कौन कौनसा क्या क्यों गई गए
        गया जब जहां जहाँ जा जाता जो तक तब तो था थी थे द्वारा न नहीं ना ने पर फिर बाद बारे भी मुझे में मेरा मेरी
        मेरे मैं यदि यह यहां या ये रहा रही रहे लिए ले वह वहां वाला वाली वाले वे व से सकता सकते हम हमारा हमारे ही
        हुआ हुई हुए है हैं हो होता होती होते कहाँ कहां कैसे
        """,
}

_UNSPACED = {
    "zh": """
        什么 甚么 哪里 哪儿 哪个 哪些 哪一 怎么 怎样 怎么样 为什么 为何 如何 多少 几个 什么时候 何时 谁 是否 吗
        呢 的 了 是 在 和 与 或 这个 那个 这些 那些 我们 你们 他们 她们 它们 自己 以及 因为 所以 但是 什麼 甚麼
        哪裡 哪個 怎麼 怎樣 為什麼 為何 幾個 誰 嗎 這個 那個 這些 我們 你們 他們 因為 於 于 被 把 对于 對於 关于
        關於
        """,
    "ja": """
        です ですか でした ます ますか ました ましたか ません どこ どの どれ どう どうして どのように どのくらい
        いつ だれ 誰 なに 何 何ですか なぜ いくつ いくら この その あの これ それ あれ こと もの ため から まで
        より など として について における によって は が を に の と も へ で や か する した して いる いた
        ある あった なる れる られる
        """,
    "ko": """
        무엇 무엇을 무엇입니까 무엇인가 어디 어디에서 어디에 어디서 언제 누구 누가 어떻게 어떤 어느 얼마나 얼마
        몇 왜 그리고 그러나 하지만 입니까 입니다 습니까 습니다 합니다 합니까 했습니까 했습니다 인가요 나요 에서
        으로 에게 부터 까지
        """,
    "th": """
        อะไร ที่ไหน ไหน เมื่อไร เมื่อไหร่ เมื่อใด อย่างไร ยังไง เท่าไร เท่าไหร่ เท่าใด กี่ ใคร ทำไม หรือไม่ หรือ
        ไหม มั้ย ใด และ กับ ของ ที่ ใน จาก โดย แต่ ซึ่ง เป็น คือ ว่า ให้ ได้ ไม่ ก็ จะ มี อยู่ แล้ว นี้ นั้น
        เพราะ สำหรับ เพื่อ ด้วย ถ้า เขา เธอ มัน ฉัน ผม คุณ เรา พวกเขา ครับ ค่ะ คะ
        """,
}
"""Scripts without spaces, or with endings attached, such as Korean."""


def stopwords_for(words: Iterable[str]) -> frozenset[str]:
    """Return the words to drop from a query that has these words, which are lower case and folded."""
    query_words = set(words)
    best, most = ENGLISH, max(len(query_words & ENGLISH), _ENOUGH - 1)
    if len(query_words) <= most:
        return best
    latin_only = all(map(str.isascii, query_words))
    for stopwords in _lists(latin=True) if latin_only else (*_lists(latin=True), *_lists(latin=False)):
        matches = len(query_words & stopwords)
        if matches > most:
            best, most = stopwords, matches
    return best


@cache
def all_stopwords() -> frozenset[str]:
    """Return the stopwords of every language that has spaces, for a text that has little else."""
    return ENGLISH.union(*_lists(latin=True), *_lists(latin=False))


@cache
def _lists(*, latin: bool) -> tuple[frozenset[str], ...]:
    """Return the lists in Latin letters, which need no folding, or the others."""
    lists = (words for words in _SPACED.values() if words.isascii() == latin)
    return tuple(frozenset((words if latin else fold(normalise(words))).split()) for words in lists)


@cache
def _unspaced_by_first() -> dict[str, tuple[str, ...]]:
    """Return the stopwords of unspaced scripts by their first character."""
    by_first: dict[str, tuple[str, ...]] = {}
    for word in dict.fromkeys(normalise(" ".join(_UNSPACED.values())).split()):
        by_first[word[0]] = (*by_first.get(word[0], ()), word)
    return by_first


def is_stopword_run(run: str) -> bool:
    """Return whether a run of an unspaced script consists of stopwords alone: 是什么, คืออะไร.

    Stopwords inside a longer run stay. Telling them from parts of other words needs a dictionary, and the rarity of a
    pair of characters is weight enough: removing them there lost as many answers as it gained.
    """
    by_first = _unspaced_by_first()
    ends = {0}
    for at in range(len(run)):
        if at in ends:
            ends.update(at + len(word) for word in by_first.get(run[at], ()) if run.startswith(word, at))
    return len(run) in ends


def content_words(text: str) -> frozenset[str]:
    """Return the words that say what a text is about: folded, without stop words, of unspaced scripts as pairs."""
    words: set[str] = set()
    for word in re.findall(r"\w+", fold(text).lower()):
        if word.isascii() or not is_unspaced(word[0]):
            words.add(word[:-1] if len(word) > 3 and word.endswith("s") else word)
        else:
            words.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
    return frozenset(words - ENGLISH)
