"""The commands of switchml-ctl: a module for each group.

A command returns what it has found as a `Result`, and knows nothing about tables or JSON: `rendering` shows the result,
as an object for programs, or for people as `text` has it.

Modules of commands import click and what is as light. What a command works with is imported when it runs, so that
--help and completion in a shell take no longer than click does.
"""
