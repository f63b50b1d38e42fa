"""The entry point. The verbs that a shell calls while a person types are answered first."""

from __future__ import annotations

import sys

from stack import quick


def main() -> int:
    """Run the command line and give the exit code."""
    try:
        code = quick.answer(sys.argv[1:])
        if code is not None:
            sys.stdout.flush()
            return code
    except OSError as wrong:
        from stack import cli

        return cli.output_failed(wrong)
    from stack import cli

    return cli.main(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
