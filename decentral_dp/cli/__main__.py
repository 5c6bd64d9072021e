"""The command line as `python -m decentral_dp.cli`."""

from decentral_dp.cli.main import main

if __name__ == "__main__":
    main()
