"""Which words of a program with ordinary options make it write or execute, as its row says."""

import re
from collections.abc import Sequence

from crushpy.permissions.options import read_arguments
from crushpy.permissions.program_table import Program
from crushpy.permissions.shell.ast import Word

Risks = dict[int, str]
"""Why a word is risky, as the end of a sentence, by the index of the word."""
_STANDARD_STREAMS = frozenset(("-", "/dev/null", "/dev/stdout", "/dev/stderr"))


def option_risks(words: Sequence[Word], row: Program, program: str) -> Risks:
    """The risky words of a program, or of a subcommand whose full name is `program`."""
    risks: Risks = {}
    operands = 0
    for argument in read_arguments(words, row):
        index, word, text = argument.index, argument.word, argument.word.text
        is_literal = word.kind == "literal"
        if row.risky and argument.is_option and not is_literal:
            risks[index] = "it could turn out to be an option that writes or executes"
        elif argument.has(row.risky) and not (row.safe and re.fullmatch(row.safe, text)):
            risks[index] = f"with it {program} can write or execute"
            if argument.awaits_value(row.risky) and index + 1 < len(words):
                risks[index + 1] = f"it is what {text} stands for"
        elif is_literal and row.risky_text and re.search(row.risky_text, text):
            risks[index] = f"with it {program} can write or execute"
        elif row.risky_operands and argument.is_operand:
            operands += 1
            is_free = operands <= row.free_operands or text in _STANDARD_STREAMS
            if not is_literal or (not is_free and re.fullmatch(row.risky_operands, text, re.DOTALL)):
                risks[index] = f"{program} can write to it or execute it"
    return risks
