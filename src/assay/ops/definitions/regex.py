"""Regular expressions in RE2's syntax, matched in time linear in the text.

A pattern is parsed into a tree, the tree into the states of a nondeterministic automaton, and a match runs over sets of
these states, which are remembered as they come up. No pattern can make it backtrack. As in RE2 there are no back
references and no look-around; `\\C` (a byte) and classes of scripts such as `\\p{Greek}` are refused, since texts are
sequences of characters here and Python knows their categories only.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

MAX_REPEAT = 1000
MAX_DEPTH = 100
MAX_STATES = 100_000
MAX_REMEMBERED = 10_000

Test: TypeAlias = Callable[[str], bool]
Tree: TypeAlias = tuple[Any, ...]
"""("test", Test) | ("at", kind) | ("cat", trees) | ("alt", trees) | ("repeat", tree, least, most or None)."""

EMPTY: Tree = ("cat", ())

_POSIX: dict[str, str] = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\x00\x7f",
    "blank": "\t\t  ",
    "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZaz__",
    "xdigit": "09AFaf",
}
"""Pairs of first and last characters."""
_PERL = {"d": "09", "s": "\t\n\f\r  ", "w": "09AZaz__"}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ANCHORS = {"A": "text_start", "z": "text_end", "b": "boundary", "B": "no_boundary"}
_SUBCATEGORIES = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES = frozenset(main + sub for main, subs in _SUBCATEGORIES.items() for sub in ("", *subs))
_FOLDED_ALIKE = {"k": "\u212a", "s": "\u017f", "å": "\u212b"}


@lru_cache(65536)
def _case_variants(char: str) -> tuple[str, ...]:
    low = char.casefold() if len(char.casefold()) == 1 else char.lower()
    found = {char, low, low.upper(), _FOLDED_ALIKE.get(low, char)}
    return tuple(sorted(variant for variant in found if len(variant) == 1))


def _in_pairs(pairs: str) -> Test:
    bounds = list(zip(pairs[::2], pairs[1::2], strict=True))
    return lambda char: any(low <= char <= high for low, high in bounds)


def _not(test: Test) -> Test:
    return lambda char: not test(char)


def _any_of(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda char: any(test(char) for test in tests)


def _any_case(test: Test) -> Test:
    return lambda char: any(test(variant) for variant in _case_variants(char))


def _anything(char: str) -> bool:
    return True


def _category(name: str) -> Test:
    return lambda char: unicodedata.category(char).startswith(name)


@dataclass(frozen=True)
class _Flags:
    ignore_case: bool = False
    multi_line: bool = False
    dot_all: bool = False


_FLAG_NAMES = {"i": "ignore_case", "m": "multi_line", "s": "dot_all", "U": ""}


class _Parser:
    """Recursive descent over the pattern; ValueError says where it is wrong."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.flags = pattern, 0, _Flags()

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f"the pattern {self.pattern[:100]!r} is no RE2 pattern: {message} at position {self.at}")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        self.at += len(text) * found
        return found

    def char(self) -> str:
        if self.at >= len(self.pattern):
            self.fail("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def until(self, end: str) -> str:
        stop = self.pattern.find(end, self.at)
        if stop < 0:
            self.fail(f"'{end}' is missing")
        text, self.at = self.pattern[self.at : stop], stop + len(end)
        return text

    def whole(self) -> Tree:
        tree = self.alternatives(0)
        if self.at < len(self.pattern):
            self.fail("a ')' too many")
        return tree

    def alternatives(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            self.fail(f"groups nest deeper than {MAX_DEPTH}")
        branches = [self.concatenation(depth)]
        while self.take("|"):
            branches.append(self.concatenation(depth))
        return branches[0] if len(branches) == 1 else ("alt", tuple(branches))

    def concatenation(self, depth: int) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            if self.take("\\Q"):
                parts.extend(self.literal(char) for char in self.quoted())
            else:
                parts.append(self.repeated(self.atom(depth)))
        return parts[0] if len(parts) == 1 else ("cat", tuple(parts))

    def quoted(self) -> str:
        stop = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at :] if stop < 0 else self.pattern[self.at : stop]
        self.at = len(self.pattern) if stop < 0 else stop + 2
        return text

    def repeated(self, tree: Tree) -> Tree:
        bounds = self.repetition()
        if bounds is None:
            return tree
        self.take("?")
        if self.repetition() is not None:
            self.fail("a repetition of a repetition")
        return ("repeat", tree, *bounds)

    def repetition(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(mark):
                return bounds
        stop = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at + 1 : max(stop, 0)].partition(",")
        if not self.peek("{") or not _is_number(least) or not (most == "" or _is_number(most)):
            return None
        self.at = stop + 1
        low, high = int(least), int(least) if not comma else int(most) if most else None
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            self.fail(f"a repetition of {low} to {high} times")
        return low, high

    def atom(self, depth: int) -> Tree:
        char = self.char()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return self.tested(self.char_class())
        if char == ".":
            return ("test", _anything if self.flags.dot_all else _not("\n".__eq__))
        if char in "^$":
            kinds = ("line_start", "line_end") if self.flags.multi_line else ("text_start", "text_end")
            return ("at", kinds["^$".index(char)])
        if char == "\\":
            return self.escaped()
        if char in "*+?":
            self.fail(f"nothing for '{char}' to repeat")
        return self.literal(char)

    def literal(self, char: str) -> Tree:
        if self.flags.ignore_case and len(_case_variants(char)) > 1:
            return ("test", _any_case(char.__eq__))
        return ("test", char.__eq__)

    def tested(self, test: Test) -> Tree:
        return ("test", _any_case(test) if self.flags.ignore_case else test)

    def group(self, depth: int) -> Tree:
        outer = self.flags
        if self.take("?P<") or (self.peek("?<") and not self.peek("?<=") and not self.peek("?<!") and self.take("?<")):
            if not self.until(">").isidentifier():
                self.fail("a group has no proper name")
        elif self.take("?"):
            self.flags = self.changed_flags()
            if self.char() == ")":
                return EMPTY
        tree = self.alternatives(depth + 1)
        if not self.take(")"):
            self.fail("a ')' is missing")
        self.flags = outer
        return tree

    def changed_flags(self) -> _Flags:
        flags, value = self.flags, True
        while not self.peek(")") and not self.peek(":"):
            mark = self.char()
            if mark == "-" and value:
                value = False
            elif mark in _FLAG_NAMES:
                flags = replace(flags, **({_FLAG_NAMES[mark]: value} if _FLAG_NAMES[mark] else {}))
            else:
                self.fail(f"'(?{mark}' is no group")
        return flags

    def escaped(self) -> Tree:
        char = self.char()
        if char in _ANCHORS:
            return ("at", _ANCHORS[char])
        self.at -= 1
        known = self.escaped_class()
        return self.tested(known) if known is not None else self.literal(self.escaped_char())

    def escaped_class(self) -> Test | None:
        """The class that the escape after a backslash names, None if it names a character."""
        mark = self.pattern[self.at : self.at + 1]
        if mark.lower() in _PERL and mark:
            self.at += 1
            test = _in_pairs(_PERL[mark.lower()])
            return test if mark.islower() else _not(test)
        if mark not in ("p", "P"):
            return None
        self.at += 1
        name = self.until("}") if self.take("{") else self.char()
        inverted = (mark == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name != "Any" and name not in _CATEGORIES:
            self.fail(f"'{name}' is no category of characters")
        test = _category("" if name == "Any" else name)
        return _not(test) if inverted else test

    def escaped_char(self) -> str:
        char = self.char()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char == "x":
            digits = self.until("}") if self.take("{") else self.char() + self.char()
            if not digits or len(digits) > 8 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                self.fail(f"'{digits}' is no character code")
            return self.coded(int(digits, 16))
        if char in "01234567":
            digits = char
            while len(digits) < 3 and self.pattern[self.at : self.at + 1] in tuple("01234567"):
                digits += self.char()
            if char != "0" and len(digits) == 1:
                self.fail("a back reference")
            return self.coded(int(digits, 8))
        if char.isalnum() and char.isascii():
            self.fail(f"'\\{char}' means nothing")
        return char

    def coded(self, code: int) -> str:
        if code > 0x10FFFF:
            self.fail(f"{code:#x} is no character")
        return chr(code)

    def char_class(self) -> Test:
        inverted = self.take("^")
        tests: list[Test] = []
        while not tests or not self.peek("]"):
            tests.append(self.class_item())
        self.at += 1
        return _not(_any_of(tests)) if inverted else _any_of(tests)

    def class_item(self) -> Test:
        if self.peek("[:") and ":]" in self.pattern[self.at + 2 :]:
            self.at += 2
            name = self.until(":]")
            if name.removeprefix("^") not in _POSIX:
                self.fail(f"'[:{name}:]' is no class")
            test = _in_pairs(_POSIX[name.removeprefix("^")])
            return _not(test) if name.startswith("^") else test
        if self.peek("\\"):
            self.at += 1
            known = self.escaped_class()
            if known is not None:
                return known
            self.at -= 1
        low = high = self.class_char()
        if self.peek("-") and not self.peek("-]"):
            self.at += 1
            high = self.class_char()
        if high < low:
            self.fail(f"the range {low}-{high} is empty")
        return _in_pairs(low + high)

    def class_char(self) -> str:
        char = self.char()
        return self.escaped_char() if char == "\\" else char


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


# --- the automaton

Core: TypeAlias = tuple[frozenset[int], str]
"""The states reached so far, and what kind of character came before: start, newline, word, other."""


@dataclass
class Matcher:
    """A compiled pattern. Each state is (kind, test or place, next, other next); state 0 accepts."""

    states: list[tuple[str, Any, int, int]] = field(default_factory=lambda: [("accept", None, 0, 0)])
    start: int = 0
    remembered: dict[tuple[Core, str], Core] = field(default_factory=dict[tuple[Core, str], Core])

    def full_match(self, text: str) -> bool:
        """Whether the pattern matches the whole of `text`."""
        core: Core = (frozenset((self.start,)), "start")
        for char in text:
            following = self.remembered.get((core, char))
            core = self._step(core, char) if following is None else following
            if not core[0]:
                return False
        return 0 in self._closure(core, None)

    def _step(self, core: Core, char: str) -> Core:
        reached = self._closure(core, char)
        passed = frozenset(
            onward for kind, test, onward, _ in map(self.states.__getitem__, reached) if kind == "test" and test(char)
        )
        following = (passed, "newline" if char == "\n" else "word" if _is_word(char) else "other")
        if len(self.remembered) >= MAX_REMEMBERED:
            self.remembered.clear()
        self.remembered[core, char] = following
        return following

    def _closure(self, core: Core, char: str | None) -> set[int]:
        """All states that can be reached before `char` (None: the end of the text) without reading on."""
        places = _places(core[1], char)
        seen: set[int] = set()
        waiting = list(core[0])
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            kind, place, first, second = self.states[number]
            if kind == "split":
                waiting += (first, second)
            elif kind == "at" and place in places:
                waiting.append(first)
        return seen

    def add(self, tree: Tree, onward: int) -> int:
        """The state at which `tree` starts, if `onward` is where it ends."""
        kind = tree[0]
        if kind in ("test", "at"):
            return self._state(kind, tree[1], onward)
        if kind == "cat":
            for part in reversed(tree[1]):
                onward = self.add(part, onward)
            return onward
        if kind == "alt":
            start, *others = [self.add(branch, onward) for branch in tree[1]]
            for other in others:
                start = self._state("split", None, start, other)
            return start
        _, inner, least, most = tree
        return self._repeat(inner, least, most, onward)

    def _repeat(self, inner: Tree, least: int, most: int | None, onward: int) -> int:
        start = onward
        if most is None:
            start = self._state("split", None, onward, onward)
            self.states[start] = ("split", None, self.add(inner, start), onward)
        else:
            for _ in range(most - least):
                start = self._state("split", None, self.add(inner, start), onward)
        for _ in range(least):
            start = self.add(inner, start)
        return start

    def _state(self, kind: str, what: Any, first: int, second: int = 0) -> int:
        if len(self.states) >= MAX_STATES:
            raise ValueError(f"the pattern needs more than {MAX_STATES} states")
        self.states.append((kind, what, first, second))
        return len(self.states) - 1


def _is_word(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())


def _places(before: str, char: str | None) -> frozenset[str]:
    """What holds between a character of kind `before` and `char`."""
    after_word = char is not None and _is_word(char)
    holds = {
        "text_start": before == "start",
        "text_end": char is None,
        "line_start": before in ("start", "newline"),
        "line_end": char is None or char == "\n",
        "boundary": (before == "word") != after_word,
        "no_boundary": (before == "word") == after_word,
    }
    return frozenset(name for name, held in holds.items() if held)


@lru_cache(256)
def compile_pattern(pattern: str) -> Matcher:
    """The matcher of a pattern in RE2's syntax; ValueError says what is wrong with it."""
    matcher = Matcher()
    matcher.start = matcher.add(_Parser(pattern).whole(), 0)
    return matcher
