"""Both levels on a small problem, with a checkpoint as often as can be: `small_fit.py FOLDER`."""

import sys
from pathlib import Path

from decay import problem

import ifef
from ifef import storage

EPOCHS = 60


def main(folder: Path) -> None:
    """Train, keep the records, save the solution."""
    folder.mkdir(exist_ok=True)
    points = problem.sample({"equation": 110, "start": 2}, seed=1)
    features = ifef.fourier_features(problem, 28, sigma=1.0, backbone=(8, 8), seed=1)

    def keep(record: dict) -> None:
        if not record.get("tick"):
            storage.append_record(folder / "metrics.jsonl", record)

    ifef.fit(
        problem,
        features,
        points,
        lower=ifef.Ridge(1e-7),
        pretraining=ifef.Training(EPOCHS),
        upper=ifef.Training(EPOCHS, dual=ifef.PrimalDual(1e-2)),
        seed=1,
        progress=keep,
        checkpoint=folder / "checkpoint.ifef",
        checkpoint_seconds=0.0,
    ).save(folder / "solution.ifef")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
