"""Recipes, logs, manifests and metrics that are no such thing."""

import gzip
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_case import Case, link_to_zeros, loop, pipe, sparse, write

from macer.recipes import TrainRecipe, named_recipe
from macer.reporting.history import read_history
from macer.reporting.logs import read_log
from macer.runs.run import Run, begin_run
from macer.system.files import read_file

# recipes

TOML = "recipe r.toml must be a TOML file: "
GIVE = "recipe r.toml: sigma must be a number, got "


def recipe(content: str | bytes, words: str = TOML) -> Case:
    return Case(lambda: write("r.toml", content), lambda: named_recipe("r.toml"), words)


def at_recipe(make: Callable[[str], object], words: str) -> Case:
    return Case(lambda: make("r.toml"), lambda: named_recipe("r.toml"), words)


def trained(content: str, words: str) -> Case:
    return Case(lambda: write("r.toml", content), "train r.toml --out new", words)


RECIPES = {
    "a recipe of a hole": at_recipe(lambda name: sparse(name, 100 << 20), "at most 16,384 bytes"),
    "a recipe of 20,000 bytes": recipe("#" * 20_000, "must be at most 16,384 bytes, got 20,000"),
    "a recipe in a pipe": at_recipe(pipe, "r.toml must be a regular file, got a pipe"),
    "a recipe without end": at_recipe(link_to_zeros, "must be a regular file, got a device"),
    "a recipe in a circle": at_recipe(loop, "no recipe at r.toml"),
    "a recipe of arrays in arrays": recipe("sigma = " + "[" * 8000),
    "a recipe of tables in tables": recipe("sigma = " + "{a=" * 4000),
    "a recipe of a key of many parts": recipe("sigma." + "a." * 8000 + "a = 1", GIVE),
    "a recipe of a table of many parts": recipe("[sigma." + "a." * 8000 + "a]", GIVE),
    "a recipe of a long number": recipe("sigma = " + "9" * 10_000),
    "a recipe of zero bytes": recipe(bytes(100)),
    "a recipe of other bytes": recipe(b"\xff\xfe\0", "r.toml must be text in UTF-8"),
    "a recipe of two sigmas": recipe("sigma = 1\nsigma = 2\n"),
    "a recipe of a table": recipe("[sigma]\na = 1\n", GIVE),
    "a recipe of an array of arrays": recipe("sigma = [[1]]", GIVE),
    "a recipe of a day": recipe("sigma = 1979-05-27", GIVE),
    "a recipe of a key with a line": trained('"a\\nb" = 1', "recipe r.toml has an unknown field"),
    "a recipe of a text": trained('sigma = "much"', "sigma"),
    "a recipe of a table, asked for": trained("[sigma.a.b]\nc = 1", GIVE),
    "a recipe of no number": trained("sigma = nan", "sigma must be"),
    "a recipe of a number without end": trained("lr = inf", "lr must be"),
    "a recipe in a pipe, asked for": Case(
        lambda: pipe("r.toml"), "train r.toml --out new", "must be a regular file, got a pipe"
    ),
}

# logs

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime"
ROW = "0\t1\t1\t0.5\t1\t0.1"


def log(*rows: str, words: str, header: str = HEADER) -> Case:
    text = "\n".join([header, *rows]) + "\n"
    return Case(lambda: write("a.tsv", text), lambda: read_log(Path("a.tsv")), words)


def log_of(content: Callable[[], bytes], words: str) -> Case:
    return Case(lambda: write("a.tsv", content()), lambda: read_log(Path("a.tsv")), words)


def at_log(make: Callable[[str], object], words: str) -> Case:
    return Case(lambda: make("a.tsv"), lambda: read_log(Path("a.tsv")), words)


def changed(place: int, value: str) -> str:
    values = ROW.split("\t")
    values[place] = value
    return "\t".join(values)


RADIUS = "line 2: radius must be a finite number ≥ 0 and below 10⁶, got"
SIGMA = "line 2: sigma must be a number > 0, from 10⁻⁶ to 10⁶, got"
NUMBER = "must be a whole number ≥ 0 and below 2³¹, got"
LOGS = {
    "a radius of 1.7e308": log(changed(3, "1.7e308"), words=RADIUS),
    "a radius of a million": log(changed(3, "1000000"), words=RADIUS),
    "a radius of a million digits": log(changed(3, "9" * 4000), words=RADIUS),
    "a radius that is none": log(changed(3, "nan"), words=RADIUS),
    "a negative radius": log(changed(3, "-0.1"), words=RADIUS),
    "an image of 10^18": log(changed(0, "1000000000000000000"), words=f"idx {NUMBER}"),
    "an image of 2^31": log(changed(0, "2147483648"), words=f"idx {NUMBER}"),
    "an image in other digits": log(changed(0, "١"), words=f"idx {NUMBER}"),
    "a label of 10^17": log(changed(1, "100000000000000000"), words=f"label {NUMBER}"),
    "a class of 10^17": log(changed(2, "100000000000000000"), words="predict must be a class"),
    "a time of many days": log(
        changed(5, "9" * 4000 + " days, 0:00:01"), words="time must be seconds or h:mm:ss"
    ),
    "a time of 1e999": log(changed(5, "1e999"), words="time must be seconds or h:mm:ss"),
    "a sigma of 1e-300": log(f"{ROW}\t1e-300", words=SIGMA, header=f"{HEADER}\tsigma"),
    "a sigma of 1e300": log(f"{ROW}\t1e300", words=SIGMA, header=f"{HEADER}\tsigma"),
    "an alpha that is none": log(
        f"{ROW}\tnan", words="alpha must be between 0 and 1", header=f"{HEADER}\talpha"
    ),
    "a row of zero bytes": log("\0\0\0", words="a row must have 6 tab-separated values"),
    "a radius with a zero byte": log(changed(3, "0.5\0"), words=RADIUS),
    "a line of 200,000": log("0" * 200_000, words="must have lines of at most 131,072 characters"),
    "a header of 2,000 columns": log(
        ROW, words="each column must appear once, got 'a' twice", header=HEADER + "\ta" * 2000
    ),
    "two million lines": log_of(
        lambda: gzip.compress(b"0\t1\t1\t0.5\t1\t0.1\n" * 2_000_000, 1), "at most 1,048,576 lines"
    ),
    "a log of zipped zeros": log_of(
        lambda: gzip.compress(bytes(1 << 25)) * 20, "must hold at most 128 MiB of text, got more"
    ),
    "a log of a zipped line": log_of(
        lambda: gzip.compress(b"0" * (1 << 25)), "must have lines of at most 131,072 characters"
    ),
    "a log of a hole": at_log(lambda name: sparse(name, 1 << 30), "at most 134,217,728 bytes"),
    "a log in a pipe": at_log(pipe, "a.tsv must be a regular file, got a pipe"),
    "a log without end": at_log(link_to_zeros, "a.tsv must be a regular file, got a device"),
    "a log in a circle": at_log(loop, "no log at a.tsv"),
    "a log cut short": log_of(lambda: gzip.compress(HEADER.encode())[:-9], "plain or gzipped"),
    "a log that is a model": log_of(lambda: b"\x80\2}.", "must be tab-separated text"),
    "a log in a pipe, asked for": Case(
        lambda: pipe("a.tsv"), "report a.tsv", "must be a regular file, got a pipe"
    ),
    "a radius of 1.7e308, asked for": Case(
        lambda: write("a.tsv", f"{HEADER}\n{changed(3, '1.7e308')}\n"), "report a.tsv", RADIUS
    ),
}

# manifests and metrics

JSON = "manifest.json must be a manifest in JSON: "
GOOD = {"recipe": {}, "data_sha256": "0"}
LINE = {"epoch": 1, "step": 1, "samples_per_second": 1.0}


def manifest(content: Any, words: str = JSON) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    return at_manifest(lambda name: write(name, text), words)


def at_manifest(make: Callable[[str], object], words: str) -> Case:
    return Case(lambda: make("run/manifest.json"), lambda: Run(Path("run")).read_recipe(), words)


def resumed(content: Any, words: str) -> Case:
    def again() -> object:
        return begin_run(Path("run"), TrainRecipe(), "0", resume=True)

    return Case(lambda: write("run/manifest.json", json.dumps(content)), again, words)


MANIFESTS = {
    "a manifest that is a list": manifest([1]),
    "a manifest that is a number": manifest(7),
    "a manifest within manifests": manifest('{"recipe":' * 100_000),
    "a manifest of lists in lists": manifest("[" * 100_000),
    "a manifest of a long number": manifest('{"recipe":' + "9" * 10_000 + "}"),
    "a manifest of nothing": manifest({}),
    "a manifest without data": manifest({"recipe": {}}),
    "a manifest whose recipe is a list": manifest(GOOD | {"recipe": [1]}),
    "a manifest whose hash is a number": manifest(GOOD | {"data_sha256": 7}),
    "a manifest whose weights are a list": manifest(GOOD | {"weights_sha256": [7]}),
    "a manifest whose speed is a number": manifest(GOOD | {"speed": 7}),
    "a manifest of other bytes": manifest(b"\xff\xfe", "manifest.json must be text in UTF-8"),
    "a manifest of another recipe": manifest(
        GOOD | {"recipe": {"x": 1}}, "must have a recipe that this macer knows"
    ),
    "a manifest of a text for sigma": manifest(
        GOOD | {"recipe": {"sigma": "much"}}, "must have a recipe that this macer knows"
    ),
    "a manifest of a hole": at_manifest(lambda name: sparse(name, 1 << 30), "at most 16,777,216"),
    "a manifest in a pipe": at_manifest(pipe, "no run in run: expected run/manifest.json"),
    "a manifest without end": at_manifest(link_to_zeros, "no run in run"),
    "a manifest in a circle": at_manifest(loop, "no run in run"),
    "a recipe that is a list, resumed": resumed(GOOD | {"recipe": [1]}, JSON),
    "models that are a list, resumed": resumed(GOOD | {"models_sha256": [1]}, JSON),
    "a manifest in a pipe, asked for": Case(
        lambda: pipe("run/manifest.json"), "history run", "no run in run"
    ),
    "a manifest within manifests, asked for": Case(
        lambda: write("run/manifest.json", "[" * 100_000), "history run", JSON
    ),
}

METRICS_WORDS = "metrics.jsonl must have one epoch's metrics per line, in JSON: "


def metrics(content: Any, words: str = METRICS_WORDS) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content) + "\n"
    return at_metrics(lambda name: write(name, text), words)


def at_metrics(make: Callable[[str], object], words: str) -> Case:
    def both() -> None:
        write("run/manifest.json", json.dumps(GOOD))
        make("run/metrics.jsonl")

    return Case(both, lambda: read_history(Path("run")), words)


METRICS = {
    "metrics that are a list": metrics([1]),
    "metrics that are a number": metrics(7),
    "metrics of nothing": metrics({}),
    "metrics within metrics": metrics("[" * 100_000),
    "metrics of a long number": metrics('{"epoch":' + "9" * 10_000 + "}"),
    "an epoch of 10^12": metrics(LINE | {"epoch": 10**12}),
    "an epoch of 0": metrics(LINE | {"epoch": 0}),
    "an epoch of a half": metrics(LINE | {"epoch": 0.5}),
    "an epoch of text": metrics(LINE | {"epoch": "1"}),
    "a step of 10^30": metrics(LINE | {"step": 10**30}),
    "a speed of 0": metrics(LINE | {"samples_per_second": 0}),
    "a speed that is none": metrics(LINE | {"samples_per_second": float("nan")}),
    "a speed without end": metrics(LINE | {"samples_per_second": float("inf")}),
    "a radius of text": metrics(LINE | {"validation_accuracy": 1, "validation_radius": "much"}),
    "a radius without end": metrics(LINE | {"validation_radius": float("inf")}),
    "an accuracy that is none": metrics(LINE | {"validation_accuracy": float("nan")}),
    "metrics of other bytes": metrics(b"\xff\xfe", "metrics.jsonl must be text in UTF-8"),
    "metrics of a hole": at_metrics(lambda name: sparse(name, 1 << 30), "at most 16,777,216 bytes"),
    "metrics in a pipe": at_metrics(pipe, "must have looked at held-out images, got none"),
}


def listening() -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("a")


FILES = {
    "a socket": Case(listening, lambda: read_file(Path("a")), "a must be a file that can be read"),
    "a folder": Case(lambda: Path("a").mkdir(), lambda: read_file(Path("a")), "got a folder"),
}

CASES = RECIPES | LOGS | MANIFESTS | METRICS | FILES
