"""What a floor under each class costs, from the certificates in results/floor/."""

import numpy as np
from result_tables import acr, code, log_of, runner_up, table

from macer.data.sets import classes_of
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import certified_accuracy, paired_difference
from macer.reporting.texts import setting, signed_with_error, thousands

MODELS = {"record": "zoo:cifar10-1.00-record", "fast": "zoo:cifar10-1.00-fast"}


def floors() -> str:
    """Two models of the zoo without and with a floor, on the same images."""
    rows = []
    for key, name in MODELS.items():
        files = [f"floor/cifar10-1.00-{key}-{which}" for which in ("without", "with")]
        without, floored = map(log_of, files)
        gain = paired_difference(floored, without)
        for file, log, model, difference in (
            (files[0], without, code(name), ""),
            (files[1], floored, "with a floor", signed_with_error(*gain[:2])),
        ):
            rows.append((model, acr(file), difference, runner_up(file), *_shares(log)))
    head = ("", "ACR", "difference", "runner-up's", "right", *classes_of("cifar10"))
    log = log_of("floor/cifar10-1.00-record-with")
    settings = (
        f"Every 10th test image of CIFAR-10 ({thousands(len(log.idx))}), n = {thousands(log.n)}, "
        f"α = {setting(log.alpha)}."
    )
    return f"{table(head, rows)}\n{settings}\n"


def _shares(log: CertificateLog) -> list[str]:
    """The share of images that are right: of all, and of each class."""
    own = [log.correct[log.label == c] for c in np.unique(log.label)]
    return [f"{certified_accuracy(log, [0.0])[0]:.3f}", *(f"{each.mean():.2f}" for each in own)]
