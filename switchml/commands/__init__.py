"""The commands of switchml-ctl, one module for each group.

A command returns its outcome as a `Result`, and knows nothing about tables or JSON: `rendering` prints the result, as a
JSON object for programs, or for people as `text` defines.

Modules of commands import only click and modules that are as fast to import. Everything else is imported when a command
runs, so that --help and shell completion take no longer than click itself.
"""
