"""Markdown as data for the page: its script makes elements of it, and nothing of it is parsed as HTML."""

from itertools import groupby
from typing import TYPE_CHECKING, Any

from crushpy.util.markup import (
    bare_urls,
    colour_code,
    inline_tokens,
    is_absolute,
    is_too_large,
    parse_blocks,
)

if TYPE_CHECKING:
    from markdown_it.token import Token

Node = list[Any]
"""A tag, what else is known (an address, an alignment, the number of the first item, the role of code), and
the content: nodes and texts."""


def as_nodes(text: str) -> Node:
    """The content of a Markdown text. Links lead to absolute addresses only."""
    return _children(parse_blocks(text))


def _children(tokens: "list[Token]") -> Node:
    top: Node = []
    open_nodes = [top]
    for token in tokens:
        here = open_nodes[-1]
        if token.hidden:  # the paragraph in an item of a tight list
            continue
        if token.nesting > 0:
            open_nodes.append(_opened(token))
            here.append(open_nodes[-1])
        elif token.nesting < 0:
            open_nodes.pop()
        else:
            here += _content(token, in_link=any(node[:1] == ["a"] for node in open_nodes))
    return top


def _opened(token: "Token") -> Node:
    known = ""
    if token.tag == "a":
        known = str(token.attrs.get("href", ""))
        if not is_absolute(known):
            return ["span", ""]
    elif token.tag in ("th", "td"):
        known = str(token.attrs.get("style", "")).removeprefix("text-align:")
    elif token.tag == "ol":
        known = str(token.attrs.get("start", ""))
    return [token.tag, known]


def _content(token: "Token", *, in_link: bool) -> Node:
    match token.type:
        case "inline":
            tokens = inline_tokens(token.content)
            return [token.content] if tokens is None else _children(tokens)
        case "fence" | "code_block":
            language, _, _ = token.info.strip().partition(" ")
            return [["pre", language, *_coloured(language, token.content.removesuffix("\n"))]]
        case "code_inline":
            return [["code", "", token.content]]
        case "softbreak":
            return ["\n"]
        case "hardbreak" | "hr":
            return [[token.tag, ""]]
        case "image":
            words, address = f"[image: {token.content}]", str(token.attrs.get("src", ""))
            return [["a", address, words] if is_absolute(address) and not in_link else words]
        case _:
            return [token.content] if in_link else _linked(token.content)


def _linked(text: str) -> Node:
    nodes: Node = []
    start = 0
    for place, url in bare_urls(text):
        nodes += [text[start:place], ["a", url, url]]
        start = place + len(url)
    return [node for node in (*nodes, text[start:]) if node]


def _coloured(language: str, code: str) -> Node:
    lines = colour_code(language, code) if language and not is_too_large(code) else None
    if lines is None:
        return [code]
    pieces = [piece for line in lines for piece in (("\n", ""), *line)][1:]
    nodes: Node = []
    for role, group in groupby(pieces, lambda piece: piece[1] if piece[0].strip() else ""):
        text = "".join(piece for piece, _ in group)
        nodes.append(["span", role, text] if role else text)
    return nodes
