"""`python -m logsaver` is the `logsaver` command."""

from logsaver.cli import main

if __name__ == "__main__":
    main()
