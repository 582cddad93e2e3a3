"""The command line: `python -m kernelgen machine|targets|models|tune|verify|bench|attacks|run`.

In: arguments. Out: text or, with `--json`, one JSON document on stdout; progress on stderr, only on
a terminal. Exit codes: 0 done, 1 the answer is no, 2 wrong use or something is missing (one line,
never a traceback).
Never here: work; each command is one file in `kernelgen/commands`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from kernelgen.commands import attacks, machine, models, run, targets, tune, verify

INTERRUPTED = 130
WRONG_USE = 2

Handler = Callable[[argparse.Namespace], int]


def parser() -> argparse.ArgumentParser:
    """All subcommands with their arguments; `handler` is what runs them."""
    top = argparse.ArgumentParser(
        prog="python -m kernelgen",
        description="Writes inference kernels for this machine and proves each before it is kept.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (machine, targets, models, tune, verify, attacks, run):
        found = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(found)
        found.set_defaults(handler=module.main)
    _add_bench(commands)
    return top


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from kernelgen.bench import command

    text = "time our kernels against the stock stacks, interleaved in one run"
    found = commands.add_parser("bench", help=text, description=text)
    command.add_arguments(found)
    found.set_defaults(handler=command.main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    chosen = parser().parse_args(arguments)
    handler: Handler = chosen.handler
    try:
        return handler(chosen)
    except KeyboardInterrupt:
        print("kernelgen: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`); nothing is left to tell it.
        sys.stderr.close()
        return 0
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        print(f"kernelgen {chosen.command}: {_one_line(error)}", file=sys.stderr)
        return WRONG_USE


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
