"""The command line as it is, but with small presets and a checkpoint as often as can be: `small_cli.py ARGS`."""

import sys

from ifef import cli, fit, presets
from ifef.runs import session

SETTINGS = {
    "convection(50)": presets.Setting(
        (8, 8), 28, 1e-2, 1e-7, 60, {"equation": 121, "initial": 11, "periodic": 11}, pretraining=60
    )
}


def shrink() -> None:
    """Put the small settings in the place of the paper's; for a process of its own."""
    presets.SETTINGS = session.SETTINGS = SETTINGS
    defaults = fit.__kwdefaults__
    assert defaults is not None
    defaults["checkpoint_seconds"] = 0.0


if __name__ == "__main__":
    shrink()
    sys.exit(cli.main())
