"""Standing rules: sentences in which the user sets a rule, constraint, preference or prohibition. Pure.

Found by phrases (`templates/rules.toml`), never by a model, and only in the user's own words: code, quotes,
logs and text that a program inserted do not count.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise

import msgspec

from crushpy.context.tags import safe
from crushpy.core.messages import Data, Message, Note, Text
from crushpy.util.lazy_pattern import lazy_pattern

MAX_STATEMENTS = 2_000
"""Of one message; the others are counted."""
MAX_RULES = 2_000
"""Of a conversation. The oldest are dropped and counted."""
MAX_OWN_CHARS = 1_000_000
MAX_SENTENCE_CHARS = 1_200
"""A longer sentence is pasted text or a list of data."""
WRAP_COLUMNS = 60
"""A longer line without an end of sentence continues in the next one."""
MAX_LABEL_WORDS = 6
SHORT_CLAUSE_WORDS = 5
"""In longer clauses the phrases of kind `short` name a task rather than a rule."""
MAX_HINT_WORDS = 14
"""In longer sentences the phrases of kind `hint` describe something rather than set a rule."""
MIN_COMPARED_WORDS, MIN_STEM = 3, 4
NEARLY_FULL = 0.8
"""Share of their budget from which on the user is warned, before any rule is left out."""
MAX_NAMED, MAX_NAMED_CHARS = 3, 80
"""Of the rules that are left out."""
RULES_HEADING = (
    "Standing rules of the user's, word for word, with message id and time (UTC), the newest first. They "
    "still apply."
)
ADDED, WITHDRAWN = (
    "The user added a standing rule:",
    "The user withdrew a standing rule; it no longer applies:",
)
SUPERSEDED = "superseded"
"""How an earlier version ended a rule, by a guess; the user may restore it."""


class UserStatement(Data, frozen=True):
    """A sentence of the user's that is a rule or a decision."""

    text: str
    rule: bool = False
    decision: bool = False
    edit: str = ""
    """added or withdrawn: the user did that with the rule, outside a prompt. asked: a prompt asks to end a
    rule, which ends none."""
    origin: str = ""
    """sdk or fleet: said by a program or a submitter, not by the user."""


class RuleFact(Data, frozen=True):
    number: int
    """Its name in the conversation: 1, 2, 3, ..."""
    text: str
    message_id: str = ""
    at: float = 0.0
    """When it was said, in seconds since the epoch; 0 if unknown."""
    added: bool = False
    """By the user, not found in a prompt."""
    ended: str = ""
    """withdrawn; empty while it applies. In conversations of an earlier version also `SUPERSEDED`."""
    origin: str = ""
    asked: str = ""
    """The latest sentence that asks to end it: the user has not answered whether it is meant."""

    @property
    def setter(self) -> str:
        """Who set it, if not the user: then it holds in this conversation, but is not the user's."""
        names = {"sdk": "an SDK caller", "fleet": "a fleet submitter"}
        return f"set by {names[self.origin]}" if self.origin in names else ""


# --- phrases ------------------------------------------------------------------------------------------------

_NOT_WORD = lazy_pattern(r"[^\w'$%./+&-]+")
_ANSWER = lazy_pattern(r"\?\s*(?:→|[-=]>)\s*(?:no|nein|non|não|nee|nie|нет)\b")
"""The user's answer to the question that the sentence begins with: not to do it."""
_LABEL_SCOPE = lazy_pattern(r"\s+(?:for|from|on|of|in|that|when|while)\s.*|\s*[(\[].*", re.IGNORECASE)
"""What a label holds for: "Rules for the import"."""
_CLAUSE = lazy_pattern(r"[,;:()\[\]–—|，；：、\n]|\s-\s")


class RulePhrases:
    """The phrases of `rules.toml` by kind, and what they find."""

    def __init__(self, phrases: Mapping[str, Iterable[str]]) -> None:
        plain = {kind: _plain("\n".join(some)).split("\n") for kind, some in phrases.items()}
        self._all = {kind: list(dict.fromkeys(filter(None, some))) for kind, some in plain.items()}
        self._present = self._all

    def find(self, text: str) -> list[UserStatement]:
        """The statements in the user's own words, in order."""
        text = text[:MAX_OWN_CHARS]
        plain, search = _plain(text), copy(self)  # another thread may search at the same time
        search._present = {
            kind: [phrase for phrase in some if phrase in plain] for kind, some in self._all.items()
        }

        def is_rule(shown: str) -> bool:
            return getattr(search._judge(shown, shown, labelled=False), "rule", False)

        found = (search._judge(*sentence) for sentence in _sentences(text, search._is_label, is_rule))
        return [rule for rule in found if rule is not None]

    def _is_label(self, head: str) -> bool:
        words = _plain(head).strip(" #*_:：\t")
        return len(words.split()) <= MAX_LABEL_WORDS and any(
            f" {words}".endswith(label if _is_cjk(label) else f" {label}") for label in self._present["label"]
        )

    def _judge(self, sentence: str, shown: str, labelled: bool) -> UserStatement | None:
        """`shown` is the sentence without quotes and code."""
        sentence = sentence.replace(_OPEN, "").replace(_CLOSE, "")
        said = _plain(shown)
        plain = re.sub(r"^\W*+\w{1,3},|(?<![.!?…])[.!?…]++(?=\s|$)", ";", said)  # not "No, ..."
        clauses = [f" {' '.join(_NOT_WORD.sub(' ', clause).split())} " for clause in _CLAUSE.split(plain)]
        decision = self._has("".join(clauses), "decision")
        for phrase in self._present["unless"]:
            sought = phrase if _is_cjk(phrase) else f" {phrase} "
            clauses = [clause.replace(sought, "  ") for clause in clauses]
        firm = labelled or self._has("".join(clauses), "firm") or _ANSWER.search(said) is not None
        first = self._without_leads("".join(clauses[:1]))
        asks = shown.rstrip(" *_)\n").endswith(("?", "？")) or self._starts(first, "question")
        is_cry = plain.isascii() and len(plain.strip(" ;!:").split()) == 1 and ":" not in plain  # "No!"
        if (asks and not firm) or (is_cry and not labelled):
            return None
        said_clauses = [clause for clause in map(self._without_leads, clauses) if clause.strip()]
        rule = firm or self._sets_rule(said_clauses)
        asked = "asked" if self._has("".join(clauses), "end") else ""
        return UserStatement(sentence, rule, decision, asked) if rule or decision or asked else None

    def _sets_rule(self, clauses: Sequence[str]) -> bool:
        """Whether a sentence that is no question does, by its clauses without leads."""
        words, first, short = "".join(clauses), "".join(clauses[:1]), SHORT_CLAUSE_WORDS
        if any(self._starts(clause, "start") for clause in clauses):
            return True
        if self._starts(first, "when") and any(self._starts(clause, "task") for clause in clauses[1:]):
            return True
        if self._has(words, "report"):
            return False
        contrasts = clauses[1:] if self._starts(first, "short") else ()  # "use x for all of y, not z"
        if (
            self._has(words, "phrase")
            or any(self._starts(clause, kind) for clause in contrasts for kind in ("opening", "contrast"))
            or any(self._starts(clause, "short") for clause in clauses if len(clause.split()) <= short)
        ):
            return True
        if any(self._starts(clause, "task") for clause in clauses):
            return False
        hinted = self._has(words, "hint")
        if self._starts(first, "general"):
            return hinted or not self._has(first, "state")
        return self._starts(first, "opening") or (hinted and len(words.split()) <= MAX_HINT_WORDS)

    def _has(self, words: str, kind: str) -> bool:
        return any(
            phrase in words if _is_cjk(phrase) else f" {phrase} " in words for phrase in self._present[kind]
        )

    def _without_leads(self, clause: str) -> str:
        while lead := next(
            (phrase for phrase in self._present["lead"] if clause.startswith(f" {phrase} ")), ""
        ):
            clause = clause[len(lead) + 1 :]
        return clause

    def _starts(self, clause: str, kind: str) -> bool:
        return clause.startswith(
            tuple(f" {phrase}" if _is_cjk(phrase) else f" {phrase} " for phrase in self._present[kind])
        )


_CONTRACTION = lazy_pattern(
    r"\b(ca|wo|do|does|did|is|are|was|were|has|have|must|should|could|would)nt\b"  # without an apostrophe
)


def _plain(text: str) -> str:
    return _CONTRACTION.sub(r"\1n't", text.casefold().replace("’", "'"))


def _is_cjk(text: str) -> bool:
    """Whether words are not separated by spaces, or are inflected by what follows them (Korean)."""
    return not text.isascii() and max(text) >= "\u2e80"


# --- the user's own words -----------------------------------------------------------------------------------


_OPEN, _CLOSE = "\ue000", "\ue001"
"""Around a paste inside a line: it belongs to the sentence, but does not make it a rule."""


def own_words_of(message: Message) -> str:
    """The prose of a message without the lines that were pasted or piped into it."""
    found: list[str] = []
    for part in message.parts:
        if not isinstance(part, Text):
            continue
        at = 0
        for start, end in part.pasted:
            paste = part.text[start:end]
            apart = "\n" in paste or paste.endswith((*".!?。！？",))
            found += part.text[at:start], "\n\n" if apart else f"{_OPEN}{paste}{_CLOSE}"
            at = end
        found.append(part.text[at:])
    return "".join(found)


def edits_in(message: Message) -> list[UserStatement]:
    """The rules that the user added or withdrew outside a prompt."""
    how = {"rule": "added", "rule_withdrawn": "withdrawn"}
    notes = [part for part in message.parts if isinstance(part, Note) and part.about in how]
    return [
        UserStatement(note.text.partition("\n")[2], note.about == "rule", False, how[note.about], note.origin)
        for note in notes
    ]


_FENCE = lazy_pattern(
    r"^[ \t]*+(`{3,}+|~{3,}+)[^\n]*+\n.*?(?:^[ \t]*+\1[^\n]*+$|\Z)"
    r"|^I ran `[^`\n]++`[^\n:]*+:\n(?:[^\n]+\n)*[^\n]*",
    re.MULTILINE | re.DOTALL,
)
"""Code, and the output of a command of the user's (`!!`)."""
_TAG = lazy_pattern(
    r"<([\w-]*(?:remind|output|stdout|stderr|command|bash|file|document|attach|context|environment|task|report"
    r"|result|tool|log|paste|code|pre|diff|quot|transcript|summary|evidence|note|memory|skill|status|system"
    r"|agent)[\w-]*)\b",
    re.IGNORECASE,
)
"""Opens text that a program inserted, or that is marked as foreign."""
_FOREIGN_LINE = lazy_pattern(
    r"^(?: {4,}+(?![-*+•] |\d+[.)] )|\t|\+\S|E  |[ \t]*+(?:>|\||\$ |[+@-]{2,}"
    r"|\[?\d{4}-\d\d-\d\d[T ]|\[?\d\d:\d\d:\d\d|\w{3} +\d+ \d\d:\d\d"
    r"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b"
    r"|\[?(?i:error|warning|fatal|panic|traceback|exception|hint|npm err!)\b[^:\n]{0,40}(?::|\])"
    r"|File \"|\w{0,60}(?:Error|Exception|Warning):|at \S+\(|\S{1,200}:\d+:\d+:)).*$",
    re.MULTILINE,
)
"""Indented code, a quote, a row of a table, a command, a diff, a line of a log or of a stack trace."""
_QUOTE = lazy_pattern(
    r"`[^`\n]+`|\"[^\"\n]{1,300}\"|“[^”]{1,300}”|„[^“”]{1,300}[“”]|«[^»]{1,300}»|「[^」]{1,300}」|『[^』]{1,300}』"
    r"|‘[^’]{1,300}’(?!\w)|(?<!\w)'[^'\n]{2,300}'(?!\w)|\ue000[^\ue001]*\ue001"
)
_BULLET = lazy_pattern(r"^\s*(?:[-*+•–]|\d{1,3}[.)])\s+")
_HEADING = lazy_pattern(r"^\s*#{1,6}\s+")
_END = lazy_pattern(
    r"(?<![.!?…])(?:[.!?][\"')\]*_]*+\s++|[.!?…]++[\"')\]*_]*+\s++(?=[^a-zà-ÿ]))(?!→|[-=]>)"
    r"|[。！？]++[」』”）]*+"
)
"""After one mark the next sentence may begin with a small letter; after several ("...") it continues."""
_ABBREVIATION = lazy_pattern(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|incl|nr|z\.\s?b|d\.\s?h|bzw|ggf|usw|p\.\s?ex|np|т\.\s?е|напр|mrs?"
    r"|ms|dr|st|\w)\.\s+$",
    re.IGNORECASE,
)


def _hide(text: str) -> str:
    """`text` with the same length and lines; all that is not the user's own prose is blanked."""
    text = _FENCE.sub(_blank, text) if "`" in text or "~~~" in text else text
    at, pieces, unclosed = 0, list[str](), set[str]()
    for tag in _TAG.finditer(text) if "<" in text else ():
        close = text.find(f"</{tag[1]}", tag.end()) if tag.start() >= at and tag[1] not in unclosed else at
        if close < 0:
            unclosed.add(tag[1])
        elif close > at:
            pieces += [text[at : tag.start()], re.sub(r"[^\n]", "\0", text[tag.start() : close])]
            at = close
    return _QUOTE.sub(_blank, _FOREIGN_LINE.sub(_blank, "".join((*pieces, text[at:]))))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "\0", found[0])


def _sentences(
    text: str, is_label: Callable[[str], bool], is_rule: Callable[[str], bool]
) -> Iterator[tuple[str, str, bool]]:
    """Each sentence as written and with foreign text blanked, and whether a label makes it a rule. What
    follows a heading is a document: it has rules only below labels, and below headings that are one. What
    leads a list is carried with each item, not alone."""
    masked = _hide(text)
    head, labelled_head, ruling, foreign, in_list = "", False, "", False, False
    for (start, end, is_item), (*_, leads_list) in pairwise([*_paragraphs(masked), (0, 0, False)]):
        shown, written = masked[start:end], text[start:end]
        before, colon, after = shown.replace("：", ":").partition(":")
        continues = in_list and not is_item and masked[start - 1] in " \t"  # continues an item
        in_list = is_item or continues
        if not in_list:
            heading = _HEADING.match(shown) is not None
            introduces, first, labelled_head = heading or (bool(colon) and not after.strip()), 0, False
            if introduces or leads_list:
                first = [(0, 0), *_split(shown)][-1][0]
                labelled_head = any(map(is_label, (shown[first:], _LABEL_SCOPE.sub("", shown[first:]))))
            head = written[first:] if introduces or labelled_head else ""
            foreign = not labelled_head if heading else foreign
            ruling = f"{_hide(head)} " if head and is_rule(_hide(head)) else ""
        labelled = (is_item and labelled_head) or bool(colon and after.strip() and is_label(before))
        if labelled and is_item and shown.rstrip(" *_").endswith((":", "：")):
            continue  # what a list inside the list is about
        elif labelled and end - start <= MAX_SENTENCE_CHARS:
            bans = bool(head) and is_prohibition(_hide(head))  # "Out of scope:"
            yield (f"{head}\n{written}" if bans else written), shown, True
        elif foreign:
            continue
        elif head and is_item:  # the item of a list means little without its head: "Never:"
            yield f"{head}\n{written}", ruling + shown, False
        else:
            yield from (
                (written[first:last], shown[first:last], False)
                for first, last in _split(shown)
                if written[first:last] != head or (" " in head and not (leads_list or labelled_head))
            )


def _paragraphs(masked: str) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each line with those that it continues in, and whether it is the item of a list."""
    start, end, is_item, offset = -1, 0, False, 0
    for line in masked.splitlines(keepends=True):
        bullet, has_words = _BULLET.match(line), bool(line.strip("\0 \t\r\n"))
        joins = (
            has_words and not bullet and not _HEADING.match(line) and masked[end - 1] not in ".!?:;。！？："
        )
        if start >= 0 and not (joins and end - masked.rfind("\n", 0, end) > WRAP_COLUMNS):
            yield start, end, is_item
            start = -1
        if has_words and start < 0:
            start, is_item = (
                offset + (bullet.end() if bullet else len(line) - len(line.lstrip())),
                bool(bullet),
            )
        end = offset + len(line.rstrip()) if has_words else end
        offset += len(line)
    if start >= 0:
        yield start, end, is_item


def _split(shown: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence that is not too long; file names and numbers are not split."""
    ends = [found.end() for found in _END.finditer(shown)]
    ends = [end for end in ends if not _ABBREVIATION.search(shown[max(0, end - 14) : end])]
    for start, end in zip((0, *ends), (*ends, len(shown)), strict=True):
        last = start + len(shown[start:end].rstrip())
        if 2 < last - start <= MAX_SENTENCE_CHARS:
            yield start, last


# --- the rules of a conversation ----------------------------------------------------------------------------


class RuleBook:
    """The rules of a lineage while they are being merged. Only the user ends one, never another sentence."""

    def __init__(self, rules: Iterable[RuleFact]) -> None:
        self._rules = {rule.number: rule for rule in rules}
        self._next = max(self._rules, default=0) + 1
        self._by_text = {_key(rule.text): rule.number for rule in self._rules.values() if not rule.ended}

    @property
    def rules(self) -> tuple[RuleFact, ...]:
        return tuple(self._rules.values())

    def add(self, statement: UserStatement, message_id: str, at: float) -> None:
        """Takes in the next statement of the user's."""
        key = _key(statement.text)
        known = self._by_text.get(key)
        if statement.edit == "withdrawn" and known is not None:
            self._rules[known] = msgspec.structs.replace(self._rules[known], ended="withdrawn")
            del self._by_text[key]
        elif statement.rule and known is not None and not statement.origin:
            self._rules[known] = msgspec.structs.replace(self._rules[known], origin="")
        elif statement.rule and known is None:
            number = self._by_text[key] = self._next
            added = statement.edit == "added"
            self._rules[number] = RuleFact(
                number, statement.text, message_id, at, added, origin=statement.origin
            )
            self._next += 1
        elif statement.edit == "asked":
            valid = [self._rules[number] for number in sorted(self._by_text.values())]
            if meant := meant_rule(statement.text, valid):
                self._rules[meant.number] = msgspec.structs.replace(meant, asked=statement.text)


def _key(text: str) -> str:
    return " ".join(_plain(text).split())


_BAN = (
    r"\b(?:never|don't|don'ts|do not|no|not|nothing|without|avoid|stop|out of scope|off[ -]limits|taboos?"
    r"|nie|niemals|nicht|keine?n?|ohne|jamais|pas|aucune?|sans|nunca|jamás|ning[úu]na?|sin|não|sem|mai|non|senza|nooit|niet|geen|zonder|nigdy|żadnych|bez"
    r"|никогда|не|нельзя|без)\b|[不别別勿]|禁止|ない|ません|마세요|지 마|금지|안 "
)
"""Compiled on first use, to keep start-up fast."""


def is_prohibition(text: str) -> bool:
    return re.search(_BAN, _plain(text)) is not None


def _words(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.:]\d+)*|[^\W\d_]+(?:'t)?", _plain(text))


def replaced_rule(text: str, rules: Iterable[RuleFact]) -> RuleFact | None:
    """The latest of `rules` that differs from a new one in a single value: a number, or a word of a rule that
    prohibits nothing."""
    words, found = _words(text), None
    for rule in rules:
        pairs = list(zip(words, _words(rule.text), strict=False))
        differ = [word for pair in pairs if pair[0] != pair[1] for word in pair]
        same_form = len(words) == len(_words(rule.text)) >= MIN_COMPARED_WORDS and len(differ) == 2
        if same_form and (all(word[0].isdigit() for word in differ) or not is_prohibition(text + rule.text)):
            found = rule
    return found


def meant_rule(sentence: str, rules: Sequence[RuleFact]) -> RuleFact | None:
    """The rule that a sentence asks to end: the latest of those that share most words with it."""

    def stems(text: str) -> set[str]:
        found = set[str]()
        for word in _words(text):
            if _is_cjk(word):
                found.update(word[at : at + 2] for at in range(len(word) - 1))
            elif len(word) >= MIN_STEM or word[0].isdigit():
                found.add(word[:MIN_STEM])
        return found

    asked = stems(sentence)
    shared = [(len(asked & stems(rule.text)), at) for at, rule in enumerate(rules)]
    most, at = max(shared, default=(0, 0))
    return rules[at] if most or len(rules) == 1 else None


class CarriedRules(Data, frozen=True):
    """The rules as a seed contains them."""

    text: str = ""
    tokens: int = 0
    left_out: int = 0
    warning: str = ""


def carry_rules(
    rules: Sequence[RuleFact],
    limit: int,
    count: Callable[[str], int],
    *,
    dropped: int = 0,
    redact: Callable[[str], str] = lambda text: text,
) -> CarriedRules:
    """All rules that apply within `limit` tokens, the newest first. If they do not fit, ids and times are
    left out first, then the oldest that were found in prompts, and prohibitions last. `dropped` are no longer
    held."""
    valid = sorted((rule for rule in rules if not rule.ended), key=lambda rule: -rule.number)
    total = len(valid) + dropped
    if not total:
        return CarriedRules()
    lines = {rule.number: "- " + safe(redact(rule.text)).replace("\n", "\n  ") for rule in valid}
    lines |= {rule.number: f"{lines[rule.number]} [{rule.setter}]" for rule in valid if rule.setter}
    text = "\n".join((RULES_HEADING, *(f"{lines[rule.number]}{_source(rule)}" for rule in valid)))
    kept = set(lines)
    if dropped or count(text) > limit:
        text, kept = _fitted(valid, lines, total, limit, count)
    size, warning = count(text) if text else 0, ""
    if len(kept) < total:
        gone = [" ".join(line[2:].split()) for number, line in lines.items() if number not in kept]
        named = "; ".join(
            [*(line[:MAX_NAMED_CHARS] for line in gone[:MAX_NAMED]), *["…"] * (gone[MAX_NAMED:] != [])]
        )
        names = f" ({named})" if named else ""
        warning = f"{total - len(kept):,} of {total:,} standing rules do not fit into {limit:,} tokens"
        warning += f" and were left out{names}"
    elif size > NEARLY_FULL * limit:
        warning = f"the standing rules take {size:,} of {limit:,} tokens; beyond that some would be left out"
    hint = ": drop some (/rules or crushpy sessions rules) or raise compaction.rule_tokens" if warning else ""
    return CarriedRules(text, size, total - len(kept), warning + hint)


def _fitted(
    valid: Sequence[RuleFact], lines: dict[int, str], total: int, limit: int, count: Callable[[str], int]
) -> tuple[str, set[int]]:
    """The rules that fit without their sources: prohibitions, those the user added, and the newest first."""
    sizes = {number: count(f"{line}\n") for number, line in lines.items()}
    room = limit - count(RULES_HEADING)
    while room > 0:
        left, kept = room, set[int]()
        for rule in sorted(valid, key=lambda rule: (is_prohibition(rule.text), rule.added), reverse=True):
            if sizes[rule.number] <= left:
                kept.add(rule.number)
                left -= sizes[rule.number]
        more = [f"({total - len(kept)} more did not fit; recall finds them.)"] if len(kept) < total else []
        text = "\n".join((RULES_HEADING, *(line for number, line in lines.items() if number in kept), *more))
        over = count(text) - limit
        if over <= 0:
            return text, kept
        room -= over + 1
    return "", set()


def _source(rule: RuleFact) -> str:
    said = time.strftime("%Y-%m-%d %H:%M", time.gmtime(rule.at)) if rule.at else ""
    words = ", ".join(filter(None, (rule.message_id, said)))
    return f" [{words}]" if words else ""
