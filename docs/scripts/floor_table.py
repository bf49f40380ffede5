"""What a floor under each class costs, from the certificates in results/floor/."""

import numpy as np
from result_tables import acr, code, log_of, runner_up, table

from macer.data.sets import classes_of
from macer.reporting.logs import CertificateLog
from macer.reporting.scores import certified_accuracy, paired_difference
from macer.reporting.texts import setting, signed_with_error, thousands

MODELS = {"record": "zoo:cifar10-1.00-record", "fast": "zoo:cifar10-1.00-fast"}


def floors() -> str:
    """Two models of the zoo without and with a floor, on the same images; then class by class."""
    rows, columns = [], []
    for key, name in MODELS.items():
        files = [f"floor/cifar10-1.00-{key}-{which}" for which in ("without", "with")]
        without, floored = map(log_of, files)
        gain = paired_difference(floored, without)
        for file, log, model, difference in (
            (files[0], without, code(name), ""),
            (files[1], floored, "with a floor", signed_with_error(*gain[:2])),
        ):
            right = f"{certified_accuracy(log, [0.0])[0]:.3f}"
            rows.append((model, acr(file), difference, runner_up(file), right))
            columns.append(_right(log))
    by_model = table(("", "ACR", "difference", "runner-up's", "right"), rows)
    classes = zip(classes_of("cifar10"), *columns, strict=True)
    head = ("right of the class", *(row[0] for row in rows))
    log = log_of("floor/cifar10-1.00-record-with")
    settings = (
        f"Every 10th test image of CIFAR-10 ({thousands(len(log.idx))}), n = {thousands(log.n)}, "
        f"α = {setting(log.alpha)}; † the same counts by a bound that was chosen afterwards."
    )
    return f"{by_model}\n{table(head, classes)}\n{settings}\n"


def _right(log: CertificateLog) -> list[str]:
    """How many images of each class are right."""
    own = [log.correct[log.label == c] for c in np.unique(log.label)]
    return [f"{each.sum():.0f} of {len(each)}" for each in own]
