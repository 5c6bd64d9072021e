"""Entry point of `python -m decentral_dp`, the command `decentral-dp`."""

from decentral_dp.cli.main import main

main()
