"""`python -m lakestate.cli` is the `lakestate` command."""

from lakestate.cli.main import main

if __name__ == "__main__":
    main()
