"""One file per subcommand, all with the same surface: NAME, HELP, add_arguments(parser),
main(arguments) -> exit code.

In: parsed arguments. Out: text or JSON, an exit code. Never here: logic that Python callers would
need.
"""
