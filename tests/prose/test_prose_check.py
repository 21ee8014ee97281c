"""The prose check finds phrases in each kind of file, across line breaks, and honours the list of allowed places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose.prose_check import RULES, Rules, blocks_of, check, read_rules

SOURCES = {
    "docstring.py": ('"""Return it.\n\nA thing which is no\nnumber.\n"""\n', 3),
    "start.py": ('def f() -> None:\n    """Whether it runs."""\n', 2),
    "attribute.py": ('X = 1\n"""How long to wait."""\n', 2),
    "comment.py": ("x = 1\n# The thread is\n# nobody's.\n", 3),
    "trailing.py": ("x = 1  # what nobody asks for\n", 1),
    "message.py": ('raise ValueError("the agent hangs " "on port 9")\n', 1),
    "formatted.py": ('x = 1\nprint(f"{x} is no MAC address")\n', 2),
    "line.cc": ("int x;\n// Wakes it\n// anew.\nint y;\n", 3),
    "trailing.h": ("int x = '\"';  // Nobody's.\n", 1),
    "block.pml": ("/* A packet that\n * nobody waits for. */\n", 2),
    "message.cc": ('throw Error("the port is none");\n', 1),
    "beginning.p4": ("// Of numbers, but no NaN.\nbit<1> x;\n", 1),
    "field.proto": ("message A {\n  // A job of its own.\n}\n", 2),
    "script.sh": ("#!/bin/sh\n# Meanwhile it waits.\n", 2),
    "settings.toml": ("x = 1  # its job is none\n", 1),
    "page.md": ("# Title\n\nAn agent hangs\non a port.\n", 3),
    "table.md": ("| a | b |\n|---|---|\n| c | made anew |\n", 3),
}


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules(read_rules().rules, frozenset(), ())


@pytest.mark.parametrize("name", SOURCES)
def test_a_phrase_is_found_on_its_line(name: str, rules: Rules, tmp_path: Path) -> None:
    text, line = SOURCES[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    findings, _ = check([tmp_path / name], rules, tmp_path)
    assert [(finding.path, finding.line) for finding in findings] == [(name, line)]
    assert str(findings[0]).startswith(f"{name}:{line}: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("code.py", "beside = meanwhile = 1\n"),
        ("code.cc", "int nobody = anew;\n"),
        ("key.py", 'x = machine["processors"]\n'),
        ("question.py", "# What is it?\nx = 1\n"),
        ("plain.py", '"""Return the port; there is no port 0, which is no longer used. It is, of course, free."""\n'),
        ("made_pb2.py", '"""Whoever."""\n'),
        ("picture.svg", "nobody\n"),
    ],
)
def test_code_and_plain_sentences_pass(name: str, text: str, rules: Rules, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert check([tmp_path / name], rules, tmp_path) == ([], set())


def test_an_allowed_place_is_passed_over_and_reported_as_used(rules: Rules, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text('# The user nobody.\nX = "made anew"\n', encoding="utf-8")
    allowing = Rules(rules.rules, frozenset({("user.py", "nobody"), ("user.py", "beside")}), ())
    findings, used = check([tmp_path / "user.py"], allowing, tmp_path)
    assert [finding.phrase for finding in findings] == ["anew"]
    assert used == {("user.py", "nobody")}


def test_an_unchecked_path_is_passed_over(rules: Rules, tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("Nobody.\n", encoding="utf-8")
    assert check([tmp_path / "old.md"], Rules(rules.rules, frozenset(), ("old.md",)), tmp_path) == ([], set())


def test_comment_lines_that_follow_each_other_are_one_block(tmp_path: Path) -> None:
    (tmp_path / "two.cc").write_text("// One\n// sentence.\n//\n// Another.\nint x;\n// Third.\n", encoding="utf-8")
    assert [block.text for block in blocks_of(tmp_path / "two.cc")] == ["One sentence.", "Another.", "Third."]


def test_every_rule_says_what_to_write_instead() -> None:
    assert all(rule.instead for rule in read_rules(RULES).rules)
