"""Seeded bugs: each is applied to a copy of the package, and the tests must fail on it.

    python tests/support/mutants.py            all of them
    python tests/support/mutants.py NAME…      some

With TRITON_INTERPRET=1, and Triton on the path, it is about the bugs in the GPU's kernels (`make
kernels`), without it about all others (`make mutants`).

A bug that no test notices is printed and makes the exit code 1, and so is one with which the tests
do not end. The first failure is a notice.
"""

import sys

from mutation import Mutant, main

MUTANTS = {
    "two-sided bound": Mutant(
        "smoothing/confidence.py",
        "betaincinv(*shape, alpha)",
        "betaincinv(*shape, alpha / 2)",
        "smoothing/test_bounds.py",
    ),
    "ten times alpha": Mutant(
        "smoothing/confidence.py",
        "betaincinv(*shape, alpha)",
        "betaincinv(*shape, 10 * alpha)",
        "smoothing/test_bounds.py",
    ),
    "bound off by one": Mutant(
        "smoothing/confidence.py",
        "n - count + 1.0)",
        "n - count + 0.5)",
        "smoothing/test_bounds.py",
    ),
    "estimate instead of bound": Mutant(
        "smoothing/confidence.py",
        "return np.where(count > 0, p, 0.0)",
        "return count / n * DOWN + 0 * p",
        "smoothing/test_bounds.py",
    ),
    "bound rounded up": Mutant(
        "smoothing/confidence.py",
        "DOWN = 1.0 - ULPS",
        "DOWN = 1.0 + ULPS",
        "smoothing/test_bounds.py",
    ),
    "Hoeffding without its half": Mutant(
        "smoothing/confidence.py",
        "-np.log(alpha) / (2 * n)",
        "-np.log(alpha) / (4 * n)",
        "smoothing/test_bounds.py",
    ),
    "Bernstein with one tail": Mutant(
        "smoothing/confidence.py",
        "log_term = np.log(2 / alpha)",
        "log_term = np.log(1 / alpha)",
        "smoothing/test_bounds.py",
    ),
    "anytime: alpha ten times too large": Mutant(
        "smoothing/confidence_sequence.py",
        ">= -math.log(alpha)",
        ">= -math.log(10 * alpha)",
        "smoothing/test_confidence_sequence.py",
    ),
    "anytime: an estimate instead of a bound": Mutant(
        "smoothing/confidence_sequence.py",
        "    return low\n",
        "    return count / np.maximum(n, 1.0) + 0 * low\n",
        "smoothing/test_confidence_sequence.py",
    ),
    "anytime: weights above 1 in all": Mutant(
        "smoothing/confidence_sequence.py",
        "1, 1, 1, 1, 8]) / 32",
        "1, 1, 1, 1, 8]) / 31",
        "smoothing/test_confidence_sequence.py",
    ),
    "anytime: wealth rounded up": Mutant(
        "smoothing/confidence_sequence.py",
        "+ gains + losses - error",
        "+ gains + losses + error",
        "smoothing/test_confidence_sequence.py",
    ),
    "anytime: the angle's rounding forgotten": Mutant(
        "smoothing/confidence_sequence.py",
        "_ERROR = 2.0**-48",
        "_ERROR = 0.0",
        "smoothing/test_confidence_sequence.py",
    ),
    "anytime: one n for all images": Mutant(
        "smoothing/bounds.py",
        "n if drawn is None or not self.anytime else drawn.numpy()",
        "n if drawn is None or self.anytime else drawn.numpy()",
        "certification/test_anytime.py",
    ),
    "anytime: Clopper–Pearson's bound at every look": Mutant(
        "smoothing/bounds.py",
        '"anytime": Bound(_anytime,',
        '"anytime": Bound(_clopper_pearson,',
        "certification/test_anytime.py",
    ),
    "anytime: the largest radius with the latest counts": Mutant(
        "certification/anytime.py",
        "max(now, then, key=lambda certificate: certificate.radius)",
        'type(now)(**{**vars(now), "radius": max(now.radius, then.radius)})',
        "certification/test_anytime.py",
    ),
    "anytime: each look draws the first samples again": Mutant(
        "certification/anytime.py",
        "only=estimated, after=before)",
        "only=estimated, after=0)",
        "certification/test_anytime.py",
    ),
    "anytime: selection samples count too": Mutant(
        "certification/anytime.py",
        "counts = Tally(*map(torch.zeros_like, counts0))",
        "counts = counts0",
        "certification/test_anytime.py",
    ),
    "one pass draws what the first image wants": Mutant(
        "smoothing/sampling.py",
        "self.first[places] + numbers",
        "self.first[0] + numbers",
        "smoothing/test_sampling.py",
    ),
    "anytime: no deadline": Mutant(
        "certification/anytime.py",
        "min(look_after(size, n), size + clock.fitting())",
        "look_after(size, n)",
        "certification/test_anytime.py",
    ),
    "anytime: seconds for all images together": Mutant(
        "certification/data_set.py",
        "size if certification.seconds is None else 1",
        "size",
        "laws/test_anytime.py",
    ),
    "any number of samples verified": Mutant(
        "audit/verify.py",
        "range(least_n(bound, header.alpha), header.n + 1)",
        "range(0, 10**12)",
        "laws/test_anytime.py",
    ),
    "as many samples drawn again as n": Mutant(
        "audit/verify.py",
        "bound_named(header.bound).anytime and recorded.drawn",
        "False and recorded.drawn",
        "laws/test_anytime.py",
    ),
    "an interruption loses the certificate so far": Mutant(
        "certification/watch.py",
        "if certificate is None:",
        "if True:",
        "laws/test_anytime.py",
    ),
    "an interrupted draw goes on": Mutant(
        "smoothing/threads.py",
        "                    future.cancel()\n",
        "                    future.done()\n",
        "smoothing/test_threads.py",
    ),
    "an interrupted task goes on": Mutant(
        "smoothing/sampling.py",
        "if ended.is_set():",
        "if False:",
        "smoothing/test_threads.py",
    ),
    "one image in one thread": Mutant(
        "smoothing/sampling.py",
        "min(CHUNKS_PER_TASK, -(-total // len(networks)))",
        "CHUNKS_PER_TASK",
        "smoothing/test_threads.py",
    ),
    "every bound soft but one": Mutant(
        "audit/verify.py",
        "is_soft != bound_named(header.bound).soft",
        'is_soft != (header.bound != "clopper-pearson")',
        "laws/test_bounds.py",
    ),
    "all of alpha for the top class beside the runner-up": Mutant(
        "smoothing/bounds.py",
        "selected, n, (1 - RIVALS_SHARE) * alpha)",
        "selected, n, alpha)",
        "laws/test_runner_up.py",
    ),
    "alpha split twice": Mutant(
        "smoothing/bounds.py",
        "selected, n, (1 - RIVALS_SHARE) * alpha)",
        "selected, n, (1 - RIVALS_SHARE) ** 2 * alpha)",
        "certification/test_conclusions.py",
    ),
    "the number of rivals forgotten": Mutant(
        "smoothing/bounds.py",
        "RIVALS_SHARE * alpha / rivals)",
        "RIVALS_SHARE * alpha)",
        "certification/test_conclusions.py",
    ),
    "all of alpha for each rival": Mutant(
        "smoothing/bounds.py",
        "RIVALS_SHARE * alpha / rivals)",
        "alpha)",
        "laws/test_runner_up.py",
    ),
    "the bound of one rival alone": Mutant(
        "smoothing/bounds.py",
        "votes.scatter(1, selected[:, None], 0).max(dim=1).values + nobody",
        "votes.roll(1, dims=1).gather(1, selected[:, None]).squeeze(1) + nobody",
        "laws/test_runner_up.py",
    ),
    "the selected class is a rival": Mutant(
        "smoothing/bounds.py",
        "votes.scatter(1, selected[:, None], 0).max(dim=1)",
        "votes.max(dim=1)",
        "certification/test_conclusions.py",
    ),
    "nobody's votes forgotten": Mutant(
        "smoothing/bounds.py",
        ".max(dim=1).values + nobody",
        ".max(dim=1).values + 0 * nobody",
        "laws/test_runner_up.py",
    ),
    "upper bound rounded down": Mutant(
        "smoothing/confidence.py",
        "np.nextafter(1.0 - others, 2.0)",
        "(1.0 - others) * DOWN**16",
        "smoothing/test_bounds.py",
    ),
    "the runner-up's share for its bound": Mutant(
        "smoothing/bounds.py",
        "return clopper_pearson_upper(counts, n, RIVALS_SHARE * alpha / rivals)",
        "return counts / n",
        "laws/test_runner_up.py",
    ),
    "the runner-up above what the top class leaves": Mutant(
        "smoothing/bounds.py",
        "p_b = np.minimum(self.upper(tally, selected, n, alpha), p_b)",
        "p_b = self.upper(tally, selected, n, alpha)",
        "certification/test_conclusions.py",
    ),
    "radius of two bounds rounded up": Mutant(
        "smoothing/radius.py",
        "- sigma / 2 * lost * ULPS",
        "+ sigma / 2 * lost * ULPS",
        "smoothing/test_radius.py",
    ),
    "runner-up's bound printed rounded down": Mutant(
        "certification/table.py",
        "rounded(p_b, 12, ROUND_CEILING)",
        "rounded(p_b, 12, ROUND_FLOOR)",
        "certification/test_table.py",
    ),
    "runner-up's bound not audited": Mutant(
        "audit/verify.py",
        "        and math.isclose(recorded.p_b or 0.0, again.p_b or 0.0, rel_tol=_ROUNDING)\n",
        "",
        "audit/test_verify.py",
    ),
    "a prediction by another bound": Mutant(
        "certification/predict_files.py",
        "[Kind(bound)]",
        "[Kind()]",
        "certification/test_predict_files.py",
    ),
    "Smooth by another bound": Mutant(
        "certification/smooth.py",
        "[Kind(self.bound)]",
        "[Kind()]",
        "certification/test_smooth.py",
    ),
    "a level chosen afterwards taken for fixed": Mutant(
        "certification/header.py",
        "return alpha == self.alpha and bound in (self.bound, *self.also)",
        "return bound in (self.bound, *self.also)",
        "certification/test_header.py",
    ),
    "a bound chosen afterwards taken for fixed": Mutant(
        "certification/header.py",
        "return alpha == self.alpha and bound in (self.bound, *self.also)",
        'return alpha == self.alpha and bound in ("clopper-pearson", "runner-up")',
        "certification/test_header.py",
    ),
    "older certificates merged into a promise": Mutant(
        "certification/header.py",
        "return set(a.also) <= set(b.also)",
        "return True",
        "certification/test_header.py",
    ),
    "other readings of a single radius": Mutant(
        "certification/data_set.py",
        "if recipe.radius is not None or recipe.bound not in READINGS:",
        "if recipe.bound not in READINGS:",
        "audit/test_rescore.py",
    ),
    "another reading of votes that stopped the sampling": Mutant(
        "audit/rescore.py",
        "if header.radius is not None:",
        "if False:",
        "audit/test_rescore.py",
    ),
    "counts read anew without their audit": Mutant(
        "audit/rescore.py",
        "    recompute(contents)\n",
        "",
        "audit/test_rescore.py",
    ),
    "an unfinished journal read anew": Mutant(
        "audit/rescore.py",
        "if contents.missing:",
        "if False:",
        "audit/test_rescore.py",
    ),
    "a rescored table over the certificates": Mutant(
        "runs/names.py",
        'return folder / f"{_RESCORED}{bound}-{alpha}.tsv"',
        "return folder / TABLE",
        "runs/test_names.py",
    ),
    "a reading chosen afterwards without its mark": Mutant(
        "report/tables.py",
        'mark = " †" if row.level == "chosen" else ""',
        'mark = ""',
        "audit/test_rescore.py",
    ),
    "ACRs of different bounds side by side without a word": Mutant(
        "report/tables.py",
        '("bound", {row.bound for row in rows} - {None}),',
        '("bound", set()),',
        "audit/test_rescore.py",
    ),
    "a folder without certificates hides those of the zoo": Mutant(
        "runs/zoo.py",
        "not (own / JOURNAL).exists()",
        "not own.exists()",
        "runs/test_zoo.py",
    ),
    "too few samples for a bound": Mutant(
        "smoothing/bounds.py",
        "if n < self.least:",
        "if n < 1:",
        "smoothing/test_bounds.py",
    ),
    "whole sigma for half": Mutant(
        "smoothing/radius.py",
        "radius: Tensor = sigma / 2 *",
        "radius: Tensor = sigma *",
        "smoothing/test_radius.py",
    ),
    "sigma squared": Mutant(
        "certification/conclusions.py",
        "radius = radius_lower(p_a, sigma, p_b)",
        "radius = radius_lower(p_a, sigma**2, p_b)",
        "certification/test_conclusions.py",
    ),
    "no abstention": Mutant(
        "certification/conclusions.py",
        "if p_a[i] > p_b[i] else ABSTAIN",
        "if p_a[i] > 0.0 else ABSTAIN",
        "certification/test_conclusions.py",
    ),
    "selection samples reused": Mutant(
        "certification/largest_radius.py",
        "sampler.draw(n, Purpose.ESTIMATION, only",
        "sampler.draw(n, Purpose.SELECTION, only",
        "certification/test_largest_radius.py",
    ),
    "class selected on the estimation samples": Mutant(
        "certification/conclusions.py",
        "selected = selected_classes(counts0, bound)",
        "selected = selected_classes(counts, bound)",
        "certification/test_conclusions.py",
    ),
    "one-sided test in PREDICT": Mutant(
        "certification/conclusions.py",
        "np.minimum(2 * bdtrc(",
        "np.minimum(1 * bdtrc(",
        "certification/test_conclusions.py",
    ),
    "images outside [0, 1] accepted": Mutant(
        "certification/settings.py",
        "if not (low >= 0 and high <= 1):",
        "if low < 0 or high > 1:",
        "certification/test_settings.py",
    ),
    "range of inputs not checked": Mutant(
        "certification/settings.py",
        "if value_range is not None and not value_range[0] <= low <= high <= value_range[1]:",
        "if False:",
        "certification/test_settings.py",
    ),
    "infinite inputs admitted": Mutant(
        "certification/settings.py",
        "    if not np.isfinite([low, high]).all():\n",
        "    if False:\n",
        "certification/test_settings.py",
    ),
    "inputs that lose the noise to rounding admitted": Mutant(
        "certification/settings.py",
        "if max(-low, high) > MOST_SIGMAS * sigma > 0:",
        "if high > 0 * MOST_SIGMAS > sigma:",
        "certification/test_settings.py",
    ),
    "exact noise claimed for floats": Mutant(
        "smoothing/sampling.py",
        "return self.images.dtype == torch.uint8",
        "return self.images.dtype != torch.float64",
        "laws/test_any_input.py",
    ),
    "exact noise promised to inputs that are no images": Mutant(
        "certification/settings.py",
        "    if exact:\n",
        "    if False:\n",
        "certification/test_settings.py",
    ),
    "a label outside of the classes is the last class": Mutant(
        "models/callables.py",
        "    if len(outside):\n",
        "    labels = labels.clip(0, num_classes - 1)\n    if False:\n",
        "models/test_callables.py",
    ),
    "labels and classes confused": Mutant(
        "models/callables.py",
        "torch.from_numpy(labels), num_classes).float()",
        "torch.from_numpy(num_classes - 1 - labels), num_classes).float()",
        "laws/test_any_input.py",
    ),
    "a callable gets the sampler's own memory": Mutant(
        "models/callables.py",
        'np.array(batch.detach().cpu().numpy(), dtype=np.float32, order="C")',
        "batch.detach().cpu().numpy()",
        "models/test_callables.py",
    ),
    "a callable runs in several threads": Mutant(
        "smoothing/sampling.py",
        ' != "cpu" or isinstance(self.model, CallableNetwork):',
        ' != "cpu":',
        "laws/test_any_input.py",
    ),
    "the field's class keeps an earlier callable": Mutant(
        "certification/smooth.py",
        "if self._called is None or self._called.function is not self.base_classifier:",
        "if self._called is None:",
        "laws/test_any_input.py",
    ),
    "number of classes not checked": Mutant(
        "smoothing/sampling.py",
        "            self._check_classes(classes)\n",
        "",
        "laws/test_any_input.py certification/test_smooth.py",
    ),
    "the shape of inputs is lost": Mutant(
        "smoothing/copies.py",
        "return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs",
        "return inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs.flatten(1)",
        "laws/test_any_input.py",
    ),
    "an input that is its own negative is exchanged for itself": Mutant(
        "smoothing/rows.py",
        "several, sigma, dtype, seed=1)",
        "several, sigma, dtype, seed=0)",
        "laws/test_any_input.py",
    ),
    "logits inside an answer ignored": Mutant(
        "kernels/agreement.py",
        'return getattr(output, "logits", output)',
        "return output",
        "models/test_answers.py models/test_callables.py",
    ),
    "a network's answer with logits trained as it is": Mutant(
        "models/build.py",
        "return model if isinstance(output, Tensor) else Logits(*model)",
        "return model",
        "models/test_answers.py",
    ),
    "a changed module of torchscript is not prepared again": Mutant(
        "kernels/graph.py",
        "            yield from part.parameters(recurse=False)\n",
        "",
        "models/test_answers.py",
    ),
    "half the noise": Mutant(
        "smoothing/copies.py",
        "np.multiply(out, np.float32(self.sigma), out=out)",
        "np.multiply(out, np.float32(self.sigma / 2), out=out)",
        "smoothing/test_sampling.py",
    ),
    "clipped noise": Mutant(
        "smoothing/copies.py",
        "            np.add(out, image, out=out)\n",
        "            np.add(out, image, out=out)\n            np.clip(out, 0, 1, out=out)\n",
        "certification/test_largest_radius.py",
    ),
    "one noise for all images": Mutant(
        "smoothing/copies.py",
        "self.indices[slot], number)\n        if",
        "0, number)\n        if",
        "certification/test_largest_radius.py",
    ),
    "one noise for all chunks": Mutant(
        "smoothing/copies.py",
        "self.indices[slot], number)\n        if",
        "self.indices[slot], 0)\n        if",
        "certification/test_largest_radius.py smoothing/test_exact_noise.py",
    ),
    "float addition in exact mode": Mutant(
        "smoothing/copies.py",
        'np.take(self.table.floats, ranks, out=out, mode="clip")',
        "np.add(np.float32((ranks - image + self.table.lowest) / 255), np.float32(image / 255), "
        "out=out)",
        "smoothing/test_exact_noise.py",
    ),
    "undecided draws counted": Mutant(
        "smoothing/copies.py",
        "decided[undecided // image.size] = False",
        "pass",
        "smoothing/test_exact_noise.py",
    ),
    "grid shifted by half a level": Mutant(
        "smoothing/exact_noise.py",
        "mpmath.mpf(2 * i + 1) / (510",
        "mpmath.mpf(2 * i + 2) / (510",
        "smoothing/test_exact_noise.py",
    ),
    "thresholds from float64": Mutant(
        "smoothing/exact_noise.py",
        "mpmath.ncdf(mpmath.mpf(2 * i + 1) / (510 * mpmath.mpf(sigma)))",
        "float(mpmath.ncdf(mpmath.mpf(2 * i + 1) / (510 * mpmath.mpf(sigma))))",
        "smoothing/test_exact_noise.py",
    ),
    "padding rows vote": Mutant(
        "smoothing/sampling.py",
        "(torch.arange(CHUNK, device=logits.device) < asked[:, None])",
        "(torch.arange(CHUNK, device=logits.device) < CHUNK + 0 * asked[:, None])",
        "certification/test_largest_radius.py",
    ),
    "NaN votes": Mutant(
        "smoothing/sampling.py",
        "counts & decided & logits.isfinite().all(dim=1)",
        "counts & decided",
        "certification/test_largest_radius.py",
    ),
    "training mode": Mutant(
        "models/modes.py",
        "        model.eval()\n",
        "        pass\n",
        "certification/test_largest_radius.py smoothing/test_rows.py",
    ),
    "no probe": Mutant(
        "models/probe.py",
        "    if same.all():\n",
        "    if True:\n",
        "smoothing/test_rows.py",
    ),
    "the probe exchanges no rows": Mutant(
        "smoothing/rows.py",
        "chosen = (numbers >> bit) % 2 == 1",
        "chosen = numbers >= 0",
        "smoothing/test_rows.py",
    ),
    "the probe takes NaN for 0": Mutant(
        "models/probe.py",
        "same = (a == b) | (a.isnan() & b.isnan())",
        "same = a.nan_to_num() == b.nan_to_num()",
        "smoothing/test_rows.py",
    ),
    "the probe leaves the order": Mutant(
        "smoothing/rows.py",
        "require_equal(network(first[order]), a[order], alone=alone, rounding=rounding)",
        "pass",
        "smoothing/test_rows.py",
    ),
    "the probe does not come back": Mutant(
        "smoothing/rows.py",
        "    require_equal(network(first), a, alone=alone)\n",
        "",
        "smoothing/test_rows.py",
    ),
    "the probe looks at images without noise": Mutant(
        "smoothing/rows.py",
        "return channels_last(batch[:rows])",
        "return channels_last(batch[:rows]).clamp(0, 1)",
        "smoothing/test_rows.py",
    ),
    "several rows at a time": Mutant(
        "smoothing/sampling.py",
        "    if row_by_row:\n        return 1\n",
        "",
        "smoothing/test_rows.py",
    ),
    "compiled code is traced": Mutant(
        "models/inference.py",
        "if not made_of_torch(model, images[:2]):",
        "if False:",
        "kernels/test_graph.py",
    ),
    "ordinary noise for multiples of 1/255": Mutant(
        "certification/settings.py",
        "grid = None if exact is False else _on_grid(images)",
        "grid = _on_grid(images) if exact else None",
        "smoothing/test_exact_noise.py",
    ),
    "soft outputs rounded to nearest": Mutant(
        "smoothing/sampling.py",
        "(u.softmax(dim=2) / SOFT_UNIT).long()",
        "(u.softmax(dim=2) / SOFT_UNIT).round().long()",
        "certification/test_largest_radius.py",
    ),
    "a stale copy answers": Mutant(
        "certification/smooth.py",
        "            self._prepared.clear()\n",
        "            pass\n",
        "certification/test_smooth.py",
    ),
    "radius printed rounded up": Mutant(
        "certification/table.py",
        "return rounded(value, decimals, ROUND_FLOOR)",
        "return rounded(value, decimals, ROUND_CEILING)",
        "certification/test_table.py",
    ),
    "damaged records read": Mutant(
        "certification/journal.py",
        "return body if digest == _digest(header_digest, body) else None",
        "return body",
        "certification/test_journal.py",
    ),
    "another header accepted": Mutant(
        "certification/journal.py",
        "if differs := difference(written, header):",
        "if differs := None:",
        "certification/test_journal.py",
    ),
    "two certificates of an image merged": Mutant(
        "certification/shards.py",
        "if known is not records and _claim(known[idx]) != _claim(records[idx]):",
        "if False:",
        "certification/test_data_set.py",
    ),
    "a trace taken for the network": Mutant(
        "models/inference.py",
        "return graph if agree(model, graph, shape, tolerance=1e-3) else model",
        "return graph",
        "models/test_inference.py",
    ),
    "logits of eight bits": Mutant(
        "models/inference.py",
        "        _end_in_float(prepared)\n",
        "        pass\n",
        "models/test_inference.py",
    ),
    "another device's samples": Mutant(
        "audit/verify.py",
        "        if made != present:",
        "        if False:",
        "certification/test_data_set.py",
    ),
    "a wrong prediction counts": Mutant(
        "report/scores.py",
        "return float(np.mean(log.radius * log.correct))",
        "return float(np.mean(log.radius))",
        "report/test_scores.py",
    ),
    "beta in the cross-entropy": Mutant(
        "losses/macer.py",
        "return classification(u, labels)",
        "return classification(beta * u, labels)",
        "losses/test_macer.py",
    ),
    "hinge masked after the quantile": Mutant(
        "losses/macer.py",
        "q_a=torch.where(active, q_a, half),",
        "q_a=q_a,",
        "losses/test_macer.py",
    ),
    "everybody in G": Mutant(
        "losses/macer.py",
        "in_G = z_hat.argmax(dim=1) == labels",
        "in_G = z_hat.argmax(dim=1) >= 0",
        "losses/test_macer.py",
    ),
    "a NaN step taken": Mutant(
        "training/step.py",
        "bad = ~(loss + norm).isfinite()",
        "bad = loss > 1e30",
        "training/test_step.py",
    ),
    "order forgotten on resuming": Mutant(
        "training/step.py",
        "begin = self.step % self.steps_per_epoch * self.size",
        "begin = 0",
        "training/test_loop.py",
    ),
    "peeking": Mutant(
        "smoothing/sequential.py",
        "robust = (count >= needed) |",
        "robust = (clopper_pearson_lower(count, n, alpha) > p0) |",
        "smoothing/test_sequential.py",
    ),
    "all of alpha spent twice": Mutant(
        "smoothing/sequential.py",
        "needed = _needed(p0, alpha * (1 - _SHARE), n_max)\n    robust = (count >= needed) | "
        "(log_wealth(count, n, p0) >= -math.log(alpha * _SHARE))",
        "needed = _needed(p0, 2 * alpha, n_max)\n    robust = (count >= needed) | "
        "(log_wealth(count, n, p0) >= -math.log(2 * alpha))",
        "smoothing/test_sequential.py",
    ),
    "a radius's threshold rounded down": Mutant(
        "smoothing/sequential.py",
        "else math.nextafter(p0, 1.0)",
        "else math.nextafter(p0, 0.0)",
        "smoothing/test_sequential.py",
    ),
    "the same samples at every look": Mutant(
        "certification/fixed_radius.py",
        "only=is_open, after=before)",
        "only=is_open, after=0)",
        "certification/test_fixed_radius.py",
    ),
    "ragged batch": Mutant(
        "smoothing/sampling.py",
        "in_parts(network, batch, rows)",
        "torch.nn.functional.pad(network(batch[: chunks.rows[-1]]), "
        "(0, 0, 0, len(batch) - chunks.rows[-1]))",
        "certification/test_largest_radius.py",
    ),
    "the wrong soft moments": Mutant(
        "smoothing/sampling.py",
        "tally.at(self.betas.index(beta))",
        "tally.at(0)",
        "certification/test_largest_radius.py",
    ),
    "labels in another precision than the certificates'": Mutant(
        "certification/predict_files.py",
        "if header.precision != model.precision:",
        "if False:",
        "certification/test_predict_files.py",
    ),
    "samples that no look has": Mutant(
        "audit/verify.py",
        "if evidence.drawn not in sizes and (evidence.drawn > 0 or not contents.header.score):",
        "if False:",
        "certification/test_data_set.py",
    ),
    "a checkpoint that names any function": Mutant(
        "system/pickles.py",
        'if f"{module}.{name}" not in self.admitted:',
        "if False:",
        "models/test_weights.py",
    ),
    "a tensor larger than its storage": Mutant(
        "models/torch_files.py",
        "if elements > storage.elements:",
        "if False:",
        "models/test_torch_files.py",
    ),
    "a storage that ends behind its file": Mutant(
        "models/torch_files.py",
        "if size != storage.elements * storage.dtype.itemsize or",
        "if",
        "models/test_torch_files.py",
    ),
    "a pipe that is waited for": Mutant(
        "system/files.py",
        "os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC",
        "os.O_RDONLY",
        "system/test_files.py",
    ),
    "a file of any size": Mutant(
        "system/files.py", "if status.st_size > limit:", "if False:", "system/test_files.py"
    ),
    "a pickle without end": Mutant(
        "system/pickles.py", "if self.left < 0:", "if False:", "models/test_torch_files.py"
    ),
    "attack out of its ball": Mutant(
        "attacks/geometry.py",
        "return torch.where(norm(delta) > epsilon, epsilon * unit(delta), delta)",
        "return delta",
        "attacks/test_images.py",
    ),
    "falsified certificates passed over": Mutant(
        "audit/findings.py",
        "[trial for trial in trials if trial.falsifies]",
        "[]",
        "audit/test_findings.py",
    ),
    "consistency turned round": Mutant(
        "losses/consistency.py",
        "log_z_bar - log_z.mean(dim=1)",
        "log_z.mean(dim=1) - log_z_bar",
        "losses/test_consistency.py",
    ),
    "hidden labels seen": Mutant(
        "training/pseudo_labels.py",
        "    labels[recipe.labelled :] = HIDDEN\n",
        "",
        "training/test_pseudo_labels.py training/test_loop.py",
    ),
    "filters that grow": Mutant(
        "training/optimizers.py",
        "    torch._foreach_mul_(filters, torch._foreach_div(norms, moved))\n",
        "",
        "training/test_optimizers.py",
    ),
    "one network for all threads": Mutant(
        "smoothing/threads.py",
        "copy.deepcopy(model, dict(tensors))",
        "model",
        "smoothing/test_threads.py",
    ),
    "quantile above its exact value": Mutant(
        "smoothing/confidence.py",
        "while (above := betainc(*shape, p) > alpha).any():",
        "if (above := betainc(*shape, p) > 1).any():",
        "smoothing/test_bounds.py",
    ),
    "copies' cross-entropies forgotten": Mutant(
        "losses/macer.py",
        "        cross_entropy=cross_entropy,\n",
        "",
        "losses/test_macer.py",
    ),
    "hard noise forgotten": Mutant(
        "losses/macer_hard_noise.py",
        "with_attacked_noise(batch, steps=steps, step_size=step_size),",
        "batch,",
        "losses/test_macer_hard_noise.py",
    ),
    "the same parts of images in every epoch": Mutant(
        "training/batches.py",
        "stream(seed, Purpose.CROPS, number, epoch)",
        "stream(seed, Purpose.CROPS, number)",
        "training/test_batches.py",
    ),
    "the parts of the first epoch in every epoch": Mutant(
        "training/step.py",
        "self.feed.batches(plan.order[begin:], self.epoch)",
        "self.feed.batches(plan.order[begin:], 0)",
        "training/test_batches.py",
    ),
    "other pixels under the same name": Mutant(
        "audit/verify.py",
        "if record.pixels != pixels_sha256(split, image):",
        "if False:",
        "data/test_image_files.py",
    ),
    "batches in another order": Mutant(
        "training/batches.py",
        "> AHEAD:\n                    self._put(waiting.popleft())",
        "> AHEAD:\n                    self._put(waiting.pop())",
        "training/test_batches.py",
    ),
    "a file's settings of its loss forgotten": Mutant(
        "cli/loss_flags.py",
        "    return of_file\n",
        "    return Loss(of_file.name)\n",
        "recipes/test_named.py",
    ),
    "code that a manifest names imported": Mutant(
        "runs/run.py",
        "if began.loss.name == recipe.loss.name:",
        "if True:",
        "laws/test_code.py",
    ),
    "code that a run of the paper names imported": Mutant(
        "experiments/paper.py",
        "if recipe.loss.name == other.loss.name:",
        "if True:",
        "laws/test_code.py",
    ),
    "settings of another loss accepted": Mutant(
        "losses/objective.py", "if setting not in known:", "if False:", "losses/test_objective.py"
    ),
    "a phase forgotten": Mutant(
        "losses/__init__.py",
        "Objective(sun, sun_phase)",
        "Objective(sun)",
        "training/test_step.py",
    ),
    "an older run's step length forgotten": Mutant(
        "recipes/older.py",
        'values["step_size"] or values["epsilon"] / max(values["steps"], 1)',
        'values["step_size"]',
        "runs/test_run.py",
    ),
    "missing certificates verified": Mutant(
        "audit/verify.py", "if missing := contents.missing:", "if False:", "laws/test_forgery.py"
    ),
    "certificates that nobody asked for": Mutant(
        "audit/verify.py",
        "(others := sorted(set(contents.records) - asked))",
        "False",
        "laws/test_forgery.py",
    ),
    "a header that need not have all": Mutant(
        "certification/header.py",
        'optional = {"split", "also"} if',
        'optional = {"split", "also"} if False and',
        "laws/test_forgery.py",
    ),
    "doubled records verified": Mutant(
        "audit/verify.py", "    if contents.doubled:", "    if False:", "laws/test_forgery.py"
    ),
    "lines in another order verified": Mutant(
        "audit/verify.py", "    if contents.misplaced:", "    if False:", "laws/test_forgery.py"
    ),
    "what is demanded is not": Mutant(
        "audit/verify.py",
        "lacking := sorted(set(expected)",
        "lacking := sorted(set()",
        "laws/test_forgery.py",
    ),
    "more votes than samples": Mutant(
        "audit/verify.py",
        "if sum(counts) > drawn * unit:",
        'if sum(counts) > header["n"] * unit:',
        "audit/test_verify.py",
    ),
    "resampling compares labels": Mutant(
        "audit/verify.py",
        "if not _follows(recorded, certificate, header.sigma):",
        "if recorded.label != certificate.label:",
        "laws/test_forgery.py",
    ),
    "a false record sought with less power": Mutant(
        "audit/verify.py",
        "missed *= max(images - false - i, 0)",
        "missed *= (images - i)",
        "audit/test_verify.py",
    ),
    "another network's outputs": Mutant(
        "certification/target.py",
        "header.outputs, model.outputs",
        "header.outputs, header.outputs",
        "certification/test_authority.py",
    ),
    "a network exchanged in the middle": Mutant(
        "certification/header.py",
        "or outputs_agree(a.outputs, b.outputs, a.precision)",
        "or True",
        "certification/test_authority.py",
    ),
    "a family that grows": Mutant(
        "certification/journal.py",
        "if header.family is not None and count > header.family:",
        "if False:",
        "certification/test_journal.py",
    ),
    "a scope that is not stated": Mutant(
        "certification/shards.py",
        "journal.state({i for scope in scopes",
        "set({i for scope in scopes",
        "certification/test_data_set.py",
    ),
    "a table that its journal does not give": Mutant(
        "report/logs.py",
        'if header != first or line != known.get(line.partition("\\t")[0]):',
        "if False:",
        "report/test_logs.py",
    ),
    "code that a file names, run": Mutant(
        "system/user_code.py",
        "if names_a_function(name) and module_of(name) not in code:",
        "if False:",
        "laws/test_code.py",
    ),
    "code of a recipe taken as typed": Mutant(
        "cli/loss_flags.py", 'if token.source != "cli":', "if False:", "laws/test_code.py"
    ),
    "own code from the current folder": Mutant(
        "system/user_code.py",
        "_importable(str(Path.cwd()) if folder is None else folder)",
        "_importable(str(Path.cwd()))",
        "laws/test_code.py",
    ),
    "any seal a valid one": Mutant(
        "runs/seals.py",
        'if not hmac.compare_digest(expected.encode(), seal.encode(errors="replace")):',
        "if False:",
        "laws/test_code.py",
    ),
    "a seal of modules alone": Mutant(
        "runs/seals.py",
        "modules, weights_sha256], sort_keys",
        "modules], sort_keys",
        "laws/test_code.py",
    ),
    "digests unread": Mutant(
        "runs/model_file.py",
        "if digest is not None and digest != _digest(tensors, values):",
        "if False:",
        "runs/test_model_file.py",
    ),
    "zoo files unchecked": Mutant(
        "runs/zoo.py",
        "if sha256 != known.get(file.name):",
        "if False:",
        "runs/test_zoo.py",
    ),
    "a packed network that is another": Mutant(
        "certification/pack.py",
        "if not torch.equal(",
        "if False and torch.equal(",
        "certification/test_pack.py",
    ),
    "audit without arithmetic": Mutant(
        "audit/verify.py",
        "if not _follows(evidence, concluded(contents.header, record), contents.header.sigma):",
        "if False:",
        "audit/test_verify.py",
    ),
    "the first part's noise for every part of a batch": Mutant(
        "training/step.py",
        "return self.ranks.part(noise)",
        "return noise[:images]",
        "system/test_processes.py",
    ),
    "certificates that are being written taken away": Mutant(
        "certification/shards.py",
        "stack.enter_context(locked(journal.parent))",
        "pass",
        "certification/test_shards.py",
    ),
    "an ACR of certificates of one radius": Mutant(
        "report/logs.py",
        "if at is not None and not one_radius:",
        "if False:",
        "experiments/test_paper_runs.py",
    ),
    "certificates of another sigma in the paper's row": Mutant(
        "experiments/paper_runs.py",
        "if log.sigma not in (None, recipe.sigma):",
        "if False:",
        "experiments/test_paper_runs.py",
    ),
    "images of the training among the held-out ones": Mutant(
        "data/selection.py",
        "start = max(self.start, first)",
        "start = max(self.start, 0)",
        "data/test_selection.py",
    ),
    "held-out images of other data": Mutant(
        "training/held_out.py",
        "if sha256 != expected:",
        "if sha256 is None:",
        "training/test_held_out.py",
    ),
    "floats in [0, 1] taken for bytes": Mutant(
        "data/arrays.py",
        "levels = np.rint(block * 255)",
        "levels = np.rint(block)",
        "data/test_arrays.py",
    ),
    "floats rounded without a word": Mutant(
        "data/arrays.py",
        "if off.any():",
        "if False:",
        "data/test_arrays.py",
    ),
    "labels that leave a class out": Mutant(
        "data/arrays.py",
        "if len(missing):",
        "if False:",
        "data/test_arrays.py",
    ),
    "arrays recorded as the recipe's data set": Mutant(
        "training/loop.py",
        "return replace(recipe, dataset=split.dataset)",
        "return recipe",
        "training/test_loop.py",
    ),
    "parts that forget their data set": Mutant(
        "data/split.py",
        "return replace(self, images=self.images[rows], labels=self.labels[rows])",
        "return Split(self.images[rows], self.labels[rows])",
        "data/test_arrays.py",
    ),
    "arrays certified as a data set of that name": Mutant(
        "cli/certify.py",
        "if card.dataset == ARRAYS:",
        "if False:",
        "certification/test_data_set.py",
    ),
    "an epoch of hardly a step": Mutant(
        "training/step.py",
        "if 2 * skipped >= steps:",
        "if skipped >= steps:",
        "training/test_step.py",
    ),
    "infinite weights kept": Mutant(
        "training/step.py",
        "if not finite.all():",
        "if False:",
        "training/test_step.py",
    ),
    "a true value for a number": Mutant(
        "system/typed.py",
        "if isinstance(value, bool) or not isinstance(value, int | float):",
        "if not isinstance(value, int | float):",
        "recipes/test_fields.py",
    ),
    "a gate without alpha": Mutant(
        "report/gate.py",
        "np.maximum((q - alpha) / (1 - alpha), 0.0)",
        "np.maximum(q, 0.0)",
        "report/test_gate.py",
    ),
    "a gate by a two-sided bound": Mutant(
        "report/gate.py",
        "q = clopper_pearson_lower(certified, images, level)",
        "q = clopper_pearson_lower(certified, images, level / 2)",
        "report/test_gate.py",
    ),
    "a gate by the estimate": Mutant(
        "report/gate.py",
        "q = clopper_pearson_lower(certified, images, level)",
        "q = np.asarray(certified) / np.maximum(images, 1)",
        "report/test_gate.py",
    ),
    "a bound that must exceed what is required": Mutant(
        "report/gate.py", "lower >= required", "lower > required", "report/test_gate.py"
    ),
    "a gate that counts wrong labels": Mutant(
        "report/gate.py",
        "return log.correct & (log.radius >= radius)",
        "return log.radius >= radius",
        "report/test_gate.py",
    ),
    "a radius that must be exceeded": Mutant(
        "report/gate.py", "(log.radius >= radius)", "(log.radius > radius)", "report/test_gate.py"
    ),
    "a radius lost in print": Mutant(
        "report/gate.py",
        "log.radius > log.at - _PRINTED",
        "log.radius >= radius",
        "report/test_gate.py",
    ),
    "a gate beyond the certified radius": Mutant(
        "report/gate.py", "if radius > log.at:", "if False:", "report/test_gate.py"
    ),
    "a baseline that is understated": Mutant(
        "report/gate.py",
        "if baseline.at not in (None, radius):",
        "if False:",
        "report/test_gate.py",
    ),
    "builds compared without pairs": Mutant(
        "report/gate.py",
        "int(np.sum(new & ~old)), int(np.sum(old & ~new))",
        "max(new.sum() - old.sum(), 0), max(old.sum() - new.sum(), 0)",
        "report/test_gate.py",
    ),
    "gained and lost exchanged": Mutant(
        "report/gate.py",
        "gained, lost, images = ",
        "lost, gained, images = ",
        "report/test_gate.py",
    ),
    "the level of a comparison spent twice": Mutant(
        "report/gate.py",
        "clopper_pearson_lower(gained, differing, (1 - _LOST_SHARE) * level)",
        "clopper_pearson_lower(gained, differing, 2 * level)",
        "report/test_gate.py",
    ),
    "lost images by their estimate": Mutant(
        "report/gate.py",
        "p = clopper_pearson_upper(lost, images, _LOST_SHARE * level)",
        "p = np.asarray(lost) / images",
        "report/test_gate.py",
    ),
    "the best class for the worst": Mutant(
        "report/gate.py",
        "worst, names = min(bounds",
        "worst, names = max(bounds",
        "report/test_gate.py",
    ),
    "a class without images left out": Mutant(
        "report/gate.py", "range(classes) if log.classes else", "", "report/test_gate.py"
    ),
    "an unfinished run judged": Mutant(
        "cli/gate.py", "if len(missing) and not partial:", "if False:", "cli/test_gate.py"
    ),
    "a table behind its journal judged": Mutant(
        "cli/gate.py", "if behind and not partial:", "if False:", "cli/test_gate.py"
    ),
    "a baseline of another level": Mutant(
        "cli/gate.py", "if build.alpha != alpha:", "if False:", "cli/test_gate.py"
    ),
    "a gate that always ends with 0": Mutant(
        "cli/app.py",
        'return None if helps or result.get("passed", True) else NOT_PASSED',
        "return None",
        "cli/test_gate.py",
    ),
    "one requirement suffices": Mutant(
        "cli/gate.py",
        "passed = all(requirement.passed",
        "passed = any(requirement.passed",
        "cli/test_gate.py",
    ),
    "failures that JUnit does not count": Mutant(
        "report/junit.py",
        "sum(not requirement.passed",
        "sum(requirement.passed and False",
        "report/test_junit.py",
    ),
    "an interval of one side": Mutant(
        "report/intervals.py", "SIDE = 0.025", "SIDE = 0.05", "report/test_intervals.py"
    ),
    "intervals of wrong predictions": Mutant(
        "report/intervals.py",
        "radii = log.radius * log.correct",
        "radii = log.radius",
        "report/test_intervals.py",
    ),
    "a radius beyond the largest": Mutant(
        "report/intervals.py",
        "if not radii.max() <= _PRINTED * largest:",
        "if False:",
        "report/test_intervals.py",
    ),
    "an interval rounded inwards": Mutant(
        "report/intervals.py",
        "math.floor(interval.low * 1000), math.ceil(interval.high * 1000)",
        "math.ceil(interval.low * 1000), math.floor(interval.high * 1000)",
        "report/test_intervals.py",
    ),
    "scores of all classes for each": Mutant(
        "report/intervals.py",
        "own = log.label == label",
        "own = log.label >= 0",
        "report/test_tables.py",
    ),
    "CSV columns that vanish": Mutant(
        "report/tables.py",
        "*(row.acr_interval or (None, None)),",
        "*(row.acr_interval or ()),",
        "report/test_tables.py",
    ),
    "held-out images taken for test images": Mutant(
        "report/scores.py",
        " or a.split != b.split",
        "",
        "training/test_held_out.py",
    ),
    "names printed as they are": Mutant(
        "system/text.py", "c if c.isprintable() else", "c if True else", "report/test_markup.py"
    ),
    "a formula in CSV": Mutant(
        "report/markup.py",
        "if value.startswith(_FORMULAS) else one_line(value)",
        "if False else one_line(value)",
        "report/test_markup.py",
    ),
    "a class's name that is a field of its own": Mutant(
        "cli/printing.py", "map(one_line, fields)", "fields", "certification/test_predict_files.py"
    ),
    "columns that depend on the logs": Mutant(
        "cli/printing.py", "radii or tables.RADII)", "radii or None)", "report/test_tables.py"
    ),
    "a page of a form": Mutant(
        "cli/report.py", "return note if form_alone else", "return", "cli/test_report.py"
    ),
    "a speed of what was skipped": Mutant(
        "system/progress.py",
        "        self.done = done\n",
        "        self(done - self.done)\n",
        "system/test_progress.py",
    ),
    "a bug that looks like a failed audit": Mutant(
        "cli/app.py", "BUG = 70", "BUG = 1", "cli/test_json.py"
    ),
    "NaN in JSON": Mutant(
        "cli/printing.py",
        "return value if math.isfinite(value) else None",
        "return value",
        "cli/test_json.py",
    ),
    "a line beside the document": Mutant(
        "cli/printing.py",
        "token = _silent.set(True)",
        "token = _silent.set(False)",
        "cli/test_json.py",
    ),
    "an unfinished log that looks finished": Mutant(
        "report/tables.py",
        "if asked in (None, count) else",
        "if True else",
        "report/test_tables.py",
    ),
    "samples of undecided noise counted": Mutant(
        "smoothing/sampling.py",
        "counts & decided & logits",
        "counts & logits",
        "smoothing/test_sampling.py",
    ),
    "the user's threads taken away": Mutant(
        "smoothing/threads.py",
        "        torch.set_num_threads(before)\n",
        "        pass\n",
        "smoothing/test_threads.py",
    ),
    "all work begun at once": Mutant(
        "smoothing/threads.py",
        "if len(pending) > 2 * threads:",
        "if False:",
        "smoothing/test_threads.py",
    ),
    "images of another type than the weights": Mutant(
        "models/modes.py",
        "return next(types, torch.float32)",
        "return torch.float32",
        "smoothing/test_sampling.py",
    ),
    "every image sampled though few are chosen": Mutant(
        "smoothing/sampling.py",
        "np.flatnonzero(only.numpy())",
        "np.arange(len(only))",
        "smoothing/test_sampling.py",
    ),
    "another kind's samples kept": Mutant(
        "certification/largest_radius.py",
        "sampler.at(counts, beta).only(estimated),",
        "sampler.at(counts, beta),",
        "certification/test_largest_radius.py::test_a_score_estimates_for_each_kind_the_images_that_this_kind_has_right",
    ),
    "images of the first kind alone estimated": Mutant(
        "certification/largest_radius.py",
        "torch.stack(chosen).any(dim=0)",
        "chosen[0]",
        "certification/test_largest_radius.py::test_a_score_estimates_for_each_kind_the_images_that_this_kind_has_right",
    ),
    "a score that says it drew all samples": Mutant(
        "certification/largest_radius.py",
        "            drawn=estimated * n,\n",
        "",
        "certification/test_largest_radius.py::test_a_score_estimates_for_each_kind_the_images_that_this_kind_has_right",
    ),
    "a soft class selected by votes": Mutant(
        "certification/conclusions.py",
        "return bound_named(bound).totals(counts0).argmax(dim=1)",
        "return counts0.votes.argmax(dim=1)",
        "certification/test_largest_radius.py::test_a_score_estimates_for_each_kind_the_images_that_this_kind_has_right",
    ),
    "a bound of one half": Mutant(
        "certification/conclusions.py",
        "if p_a[i] > p_b[i]",
        "if p_a[i] >= p_b[i]",
        "certification/test_conclusions.py",
    ),
    "the batch size forgotten": Mutant(
        "certification/largest_radius.py",
        "indices=indices, batch_size=batch_size, row_by_row=row_by_row, num_classes",
        "indices=indices, row_by_row=row_by_row, num_classes",
        "certification/test_largest_radius.py::test_what_is_asked_for_reaches_the_samples",
    ),
    "ordinary noise not to be had": Mutant(
        "certification/data_set.py",
        "as_images(images, exact=recipe.exact)",
        "as_images(images)",
        "certification/test_data_set.py::test_what_a_recipe_asks_for_reaches_certify",
    ),
    "every certification a score": Mutant(
        "certification/data_set.py",
        "labels if recipe.score else None",
        "labels",
        "certification/test_data_set.py::test_what_a_recipe_asks_for_reaches_certify",
    ),
    "soft settings not checked": Mutant(
        "certification/data_set.py",
        "for each in recipes:\n",
        "for each in recipes[:1]:\n",
        "certification/test_data_set.py::test_settings_that_make_no_sense_together_are_refused_before_anything_is_written",
    ),
    "certificates recorded twice": Mutant(
        "certification/data_set.py",
        "(r for r in records if r.idx not in journal.contents.records)",
        "(records)",
        "certification/test_data_set.py::test_soft_certificates_come_from_the_samples_of_the_hard_ones",
    ),
    "one noise for all predicted images": Mutant(
        "certification/predict_files.py",
        "indices=[noise_number(image)]",
        "indices=[0]",
        "certification/test_predict_files.py::test_images_that_differ_have_noise_of_their_own",
    ),
    "few names for an image's noise": Mutant(
        "certification/predict_files.py",
        "digest()[:7]",
        "digest()[:1]",
        "certification/test_predict_files.py::test_images_that_differ_have_noise_of_their_own",
    ),
    "a predicted radius rounded to nearest": Mutant(
        "certification/predict_files.py",
        "rounded_down(certificate.radius, 4)",
        "round(certificate.radius, 4)",
        "certification/test_predict_files.py::test_certify_is_asked_with_the_models_sigma_and_the_users_settings",
    ),
    "radius 0 taken for none": Mutant(
        "certification/predict_files.py",
        "    if radius is None:\n",
        "    if not radius:\n",
        "certification/test_predict_files.py::test_certify_is_asked_with_the_models_sigma_and_the_users_settings",
    ),
    "n0 of a prediction forgotten": Mutant(
        "certification/predict_files.py",
        "sample_and_certify(sampler, [Kind(bound)], n0=n0",
        "sample_and_certify(sampler, [Kind(bound)], n0=100",
        "certification/test_predict_files.py::test_certify_is_asked_with_the_models_sigma_and_the_users_settings",
    ),
    "an image that one of two journals lacks passed over": Mutant(
        "certification/shards.py", "set.intersection(", "set.union(", "certification/test_shards.py"
    ),
    "all images certified by all": Mutant(
        "certification/shards.py", "[ranks.rank :: ranks.count]", "", "certification/test_shards.py"
    ),
    "parts gathered before the last is done": Mutant(
        "certification/shards.py", "    ranks.wait()\n", "", "certification/test_shards.py"
    ),
    "soft parts left behind": Mutant(
        "certification/shards.py",
        'parts.glob(f"**/{JOURNAL}")',
        'parts.glob(f"*/{JOURNAL}")',
        "certification/test_shards.py",
    ),
    "a radius whose threshold is the largest bound": Mutant(
        "smoothing/sequential.py",
        "threshold(radius, sigma) < p_a",
        "threshold(radius, sigma) <= p_a",
        "smoothing/test_sequential.py::test_a_radius_is_out_of_reach_where_the_largest_bound_only_equals_its_threshold",
    ),
    "an abstention with a bound": Mutant(
        "certification/conclusions.py",
        "p_a=p0 if is_robust else 0.0",
        "p_a=p0",
        "certification/test_fixed_radius.py",
    ),
    "one seed for all fixed radii": Mutant(
        "certification/fixed_radius.py",
        "sigma=sigma, seed=seed,",
        "sigma=sigma, seed=0,",
        "certification/test_fixed_radius.py",
    ),
    "the second process copied by all": Mutant(
        "system/processes.py", "src=0)", "src=1)", "system/test_processes.py"
    ),
    "an average kept to itself": Mutant(
        "system/processes.py", "        unpack(packed, tensors)\n", "", "system/test_processes.py"
    ),
    "a longer file read": Mutant(
        "data/formats.py",
        "if len(data) != expected - start or",
        "if len(data) < expected - start or",
        "data/test_formats.py::test_a_file_longer_than_it_says_is_refused",
    ),
    "a small file that fills the memory": Mutant(
        "data/formats.py",
        "    if expected > _LARGEST_IDX:",
        "    if False:",
        "data/test_formats.py::test_a_file_may_be_as_large_as_the_limit_and_no_larger",
    ),
    "an eleventh class": Mutant(
        "data/data_set.py",
        "labels.max() < len(self.classes)",
        "labels.max() <= len(self.classes)",
        "data/test_sets.py::test_the_first_label_that_is_no_class_is_refused",
    ),
    "colours lost after a grey image": Mutant(
        "data/image_folder.py",
        'mode = mode if image.mode == "L"',
        'mode = "L" if image.mode == "L"',
        "data/test_image_folder.py::test_a_grey_image_after_a_coloured_one_leaves_all_in_colour",
    ),
    "images of several heights": Mutant(
        "data/image_folder.py",
        "and image.size != size:",
        "and image.size[0] != size[0]:",
        "data/test_image_folder.py::test_images_of_another_height_alone_are_refused",
    ),
    "rows that are too long": Mutant(
        "report/logs.py",
        "if len(texts) != len(names):",
        "if len(texts) < len(names):",
        "report/test_logs.py",
    ),
    "three images without a pattern": Mutant(
        "report/logs.py", "len(idx) > 2:", "len(idx) > 3:", "report/test_logs.py"
    ),
    "labels of other images compared": Mutant(
        "report/scores.py", "b.label[in_b]", "b.label[in_a]", "report/test_scores.py"
    ),
    "twenty images too few": Mutant(
        "report/scores.py", "if count >= 20", "if count > 20", "report/test_scores.py"
    ),
    "a row's images taken for common ones": Mutant(
        "report/tables.py", "{row.difference.images for", "{row.images for", "report/test_tables.py"
    ),
    "a batch taken for the images held out": Mutant(
        "report/history.py",
        "images=recipe.held_out,",
        "images=recipe.batch,",
        "report/test_history.py",
    ),
    "variance below its exact value": Mutant(
        "smoothing/confidence.py", " + squares * 2.0**-50", "", "smoothing/test_bounds.py"
    ),
    "draws at a cell's edge decided": Mutant(
        "smoothing/exact_noise.py",
        'np.searchsorted(thresholds, edges, side="left")',
        'np.searchsorted(thresholds, edges, side="right")',
        "smoothing/test_exact_noise.py",
    ),
    "skipped steps of earlier epochs counted": Mutant(
        "training/step.py",
        "        self.skipped.zero_()\n",
        "",
        "training/test_step.py::test_each_epoch_counts_its_own_skipped_steps_and_losses",
    ),
    "a step with a loss that is no number": Mutant(
        "training/step.py",
        "(loss + norm).isfinite()",
        "norm.isfinite()",
        "training/test_step.py::test_a_step_that_is_not_finite_changes_nothing_and_is_counted",
    ),
    "no flips without crops": Mutant(
        "training/step.py",
        "if recipe.crop or recipe.flip:",
        "if recipe.crop:",
        "training/test_step.py::test_images_are_shifted_if_crops_are_asked_for_and_mirrored_if_flips_are",
    ),
    "crops of one side": Mutant(
        "training/plan.py",
        "2 * recipe.crop + 1",
        "2 * recipe.crop + 0 ** recipe.crop",
        "training/test_step.py::test_images_are_shifted_if_crops_are_asked_for_and_mirrored_if_flips_are",
    ),
    "an objective's numbers the same in every step": Mutant(
        "training/step.py",
        "Purpose.OBJECTIVE, self.step)",
        "Purpose.OBJECTIVE)",
        "training/test_step.py::test_each_step_has_random_numbers_of_its_own_for_objectives_and_networks",
    ),
    "weights updated in the middle of an epoch": Mutant(
        "training/step.py",
        "if self.at_end_of_epoch and weights",
        "if weights",
        "training/test_step.py::test_draw_weights_are_not_updated_in_the_middle_of_an_epoch",
    ),
    "a batch of labelled images too few": Mutant(
        "training/pseudo_labels.py",
        "recipe.batch <= recipe.labelled",
        "recipe.batch < recipe.labelled",
        "training/test_pseudo_labels.py",
    ),
    "a draw that equals its share accepted": Mutant(
        "losses/catrs.py", "draws < p_hat", "draws <= p_hat", "losses/test_catrs.py"
    ),
    "steps of twice the length": Mutant(
        "losses/smoothmix.py", "        step_size=step_size,\n", "", "losses/test_smoothmix.py"
    ),
    "a teacher elsewhere taken for the comparison's": Mutant(
        "experiments/compare.py",
        'path.parent == Path("runs") and ',
        "",
        "experiments/test_compare.py::test_only_a_recipes_own_place_names_a_run_of_the_comparison",
    ),
    "a point on the sphere left out": Mutant(
        "audit/judge.py",
        "self.distance <= self.radius",
        "self.distance < self.radius",
        "audit/test_judge.py::test_a_point_on_the_sphere_is_inside_and_a_bound_that_is_met_is_not_violated",
    ),
    "a step of no length replaced": Mutant(
        "attacks/noise.py",
        "if step_size is None else",
        "if not step_size else",
        "attacks/test_noise.py",
    ),
    "a run begun twice": Mutant(
        "runs/run.py",
        "        if run.manifest.exists():  # perhaps",
        "        if False:  # perhaps",
        "runs/test_run.py",
    ),
    "sums taken for averages": Mutant(
        "system/processes.py",
        "values /= self.count",
        "values /= 1",
        "system/test_processes.py::test_two_processes_train_the_model_that_one_trains",
        slow=True,
    ),
    "the processes' talk left open": Mutant(
        "system/processes.py",
        "    from torch.distributed import nn  # noqa: F401\n",
        "",
        "system/test_processes.py::test_nothing_of_the_processes_talk_outlives_it",
        slow=True,
    ),
    "each process its own statistics": Mutant(
        "training/step.py",
        "        return after | {t: before[t]",
        "        return after | {t: after[t] - moved[t]",
        "system/test_processes.py::test_all_stop_when_one_is_asked_to_and_go_on_to_the_same_weights",
        slow=True,
    ),
    "done by every process that the first should do": Mutant(
        "system/processes.py",
        "if self.first:",
        "if self.rank >= 0:",
        "system/test_processes.py::test_a_mistake_is_one_line_of_all_processes",
        slow=True,
    ),
    "a share of the images forgotten": Mutant(
        "certification/shards.py",
        "[ranks.rank :: ranks.count]",
        "[ranks.rank :: ranks.count + 1]",
        "certification/test_shards.py::test_two_processes_make_the_table_that_one_makes",
        slow=True,
    ),
    "a norm that takes all channels for the first ones": Mutant(
        "kernels/batchnorm.py",
        "columns = tl.program_id(1) * COLUMNS +",
        "columns =",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm that keeps one of two sums twice": Mutant(
        "kernels/batchnorm.py",
        "tl.store(place + channels, tl.sum(second, 0))",
        "tl.store(place + channels, tl.sum(first, 0))",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm's mean with the rows beyond the last": Mutant(
        "kernels/batchnorm.py",
        "        value = tl.where(inside, value, 0.0)\n",
        "",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm's sums read from half way": Mutant(
        "kernels/batchnorm.py",
        "at = partial + p * 2 * channels",
        "at = partial + p * channels",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a running variance with its bias": Mutant(
        "kernels/batchnorm.py",
        "unbiased = variance * (count / (count - 1))",
        "unbiased = variance",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm's ReLU that makes NaN zero": Mutant(
        "kernels/batchnorm.py",
        "        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        "        value = tl.maximum(value, 0.0)",
        "kernels/test_batchnorm.py::test_nan_passes_through_the_norm",
        interpreted=True,
    ),
    "a gradient through a closed ReLU": Mutant(
        "kernels/batchnorm.py",
        ".to(tl.float32) > 0, dz, 0.0)\n    elif RELU",
        ".to(tl.float32) >= 0, dz, 0.0)\n    elif RELU",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm's weight with its bias's gradient": Mutant(
        "kernels/batchnorm.py",
        "products += dz * normal",
        "products += dz",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "gradients of a norm's weight and bias exchanged": Mutant(
        "kernels/batchnorm.py",
        "tl.store(dbias + c, total)",
        "tl.store(dbias + c, products)",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "a norm's gradient of one value fewer": Mutant(
        "kernels/batchnorm.py",
        "(dz - rest / count)",
        "(dz - rest / (count - 1))",
        "kernels/test_batchnorm.py::test_the_norm_kernels_are_batch_norm",
        interpreted=True,
    ),
    "an attack through a closed ReLU": Mutant(
        "kernels/batchnorm.py",
        "(tl.float32) > 0, dz, 0.0)\n    if SHORTCUT",
        "(tl.float32) >= 0, dz, 0.0)\n    if SHORTCUT",
        "kernels/test_batchnorm.py::test_the_fixed_norm_kernels_are_batch_norm_in_eval_mode",
        interpreted=True,
    ),
    "an attack through a norm without its weight": Mutant(
        "kernels/batchnorm.py",
        "slope = tl.load(scale + c) * tl.load(weight + c)\n    tl.store(dx",
        "slope = tl.load(scale + c)\n    tl.store(dx",
        "kernels/test_batchnorm.py::test_the_fixed_norm_kernels_are_batch_norm_in_eval_mode",
        interpreted=True,
    ),
    "a norm in eval mode that never trains its weights": Mutant(
        "kernels/layers.py",
        "not (self.training or trained)",
        "not self.training",
        "kernels/test_fuse_training.py::test_weights_of_a_norm_in_eval_mode_that_are_trained_get_their_gradient",
        interpreted=True,
    ),
    "a 3×3 convolution without its last line but one": Mutant(
        "kernels/conv3x3.py",
        "(row < height - 1)",
        "(row < height - 2)",
        "kernels/test_conv3x3.py::test_the_kernel_of_certification_is_convolution_shortcut_and_relu",
        interpreted=True,
    ),
    "a 3×3 convolution without its last column": Mutant(
        "kernels/conv3x3.py",
        "inside = (at >= 0) & (at < width) & (m < pairs)",
        "inside = (at >= 0) & (at < width - 1) & (m < pairs)",
        "kernels/test_conv3x3.py::test_the_kernel_of_certification_is_convolution_shortcut_and_relu",
        interpreted=True,
    ),
    "a 3×3 convolution with its taps transposed": Mutant(
        "kernels/conv3x3.py",
        "r * row + s * column",
        "s * row + r * column",
        "kernels/test_conv3x3.py::test_the_kernels_of_training_are_the_convolution_and_its_gradients",
        interpreted=True,
    ),
    "a 3×3 weight's gradient without the first line": Mutant(
        "kernels/conv3x3.py",
        "(row >= 0) & (row < height))[:, None]",
        "(row > 0) & (row < height))[:, None]",
        "kernels/test_conv3x3.py::test_the_kernels_of_training_are_the_convolution_and_its_gradients",
        interpreted=True,
    ),
    "a 3×3 weight's gradient of the last tile alone": Mutant(
        "kernels/conv3x3.py",
        "total = tl.dot(tl.trans(a), b, total)",
        "total = tl.dot(tl.trans(a), b)",
        "kernels/test_conv3x3.py::test_the_kernels_of_training_are_the_convolution_and_its_gradients",
        interpreted=True,
    ),
    "a stem without its first column": Mutant(
        "kernels/stem.py",
        "(j >= 0) & (j < width)\n",
        "(j > 0) & (j < width)\n",
        "kernels/test_stem.py::test_the_kernel_of_certification_is_convolution_pooling_and_relu",
        interpreted=True,
    ),
    "a stem's pooling that takes one pixel of a line": Mutant(
        "kernels/stem.py",
        "step = (down * width + right) * CHANNELS",
        "step = down * width * CHANNELS",
        "kernels/test_stem.py::test_the_kernel_of_certification_is_convolution_pooling_and_relu",
        interpreted=True,
    ),
    "a stem's taps of the first channel": Mutant(
        "kernels/stem.py",
        "* CHANNELS + (k % CHANNELS)[None, :]",
        "* CHANNELS + k[None, :] * 0",
        "kernels/test_stem.py::test_the_product_of_training_is_the_convolution_and_its_gradient",
        interpreted=True,
    ),
    "a pooling of every column": Mutant(
        "kernels/pooling.py",
        "width + column * 2) * CHANNELS",
        "width + column) * CHANNELS",
        "kernels/test_pooling.py::test_the_kernel_of_certification_is_pooling",
        interpreted=True,
    ),
    "a pooling that leaves out the fourth pixel": Mutant(
        "kernels/pooling.py",
        "tl.maximum(c, d, propagate_nan",
        "tl.maximum(c, c, propagate_nan",
        "kernels/test_pooling.py::test_the_kernel_of_certification_is_pooling",
        interpreted=True,
    ),
    "a pooling of one line": Mutant(
        "kernels/pooling.py",
        "tl.load(below, mask=keep",
        "tl.load(start, mask=keep",
        "kernels/test_pooling.py::test_the_kernel_of_certification_is_pooling",
        interpreted=True,
    ),
    "a pooling's gradient to all of the largest": Mutant(
        "kernels/pooling.py",
        "    g = tl.where(a == best, nothing, g)\n",
        "",
        "kernels/test_pooling.py::test_the_kernels_of_training_are_pooling_and_relu",
        interpreted=True,
    ),
    "another generator of random bits": Mutant(
        "kernels/noise.py",
        "0xBB67AE8584CAA73B",
        "0xBB67AE8584CAA73C",
        "kernels/test_noise.py::test_exact_noise_is_bit_for_bit_the_cpus",
        interpreted=True,
    ),
    "random bits begun one counter early": Mutant(
        "kernels/noise.py",
        "counter + 1, tl.load(numbers",
        "counter, tl.load(numbers",
        "kernels/test_noise.py::test_exact_noise_is_bit_for_bit_the_cpus",
        interpreted=True,
    ),
    "a draw on a threshold counted above it": Mutant(
        "kernels/noise.py",
        "- 1) < u\n",
        "- 1) <= u\n",
        "kernels/test_noise.py::test_a_draw_on_a_threshold_makes_its_row_undecided",
        interpreted=True,
    ),
    "an undecided draw that nobody is told of": Mutant(
        "kernels/noise.py",
        "mask=inside & undecided",
        "mask=inside & (lane < 0)",
        "kernels/test_noise.py::test_a_draw_on_a_threshold_makes_its_row_undecided",
        interpreted=True,
    ),
    "an undecided row of another chunk": Mutant(
        "kernels/noise.py",
        "    flags += tl.program_id(1) * ROWS\n",
        "",
        "kernels/test_noise.py::test_a_draw_on_a_threshold_makes_its_row_undecided",
        interpreted=True,
    ),
    "ordinary noise of half the variance": Mutant(
        "kernels/noise.py",
        "tl.sqrt(-2.0 *",
        "tl.sqrt(-1.0 *",
        "kernels/test_noise.py::test_ordinary_noise_is_box_mullers_of_the_streams_bits",
        interpreted=True,
    ),
    "a kernel that no test runs": Mutant(
        "kernels/pooling.py",
        "@triton.jit\ndef _largest(",
        "@triton.jit\ndef _unused(a):\n    return a\n\n\n@triton.jit\ndef _largest(",
        "kernels/test_interpreter.py::test_every_jit_function_is_run_by_the_tests_of_its_file",
        interpreted=True,
    ),
    "zeros put before the channels": Mutant(
        "kernels/padding.py",
        "(0, 0, 0, padding.more_inputs)",
        "(0, 0, padding.more_inputs, 0)",
        "kernels/test_padding.py",
    ),
    "a layer of two calls padded": Mutant(
        "kernels/graph.py",
        "return others == [node]",
        "return True",
        "kernels/test_padding.py",
    ),
    "a step replayed in another phase": Mutant(
        "kernels/launches.py",
        "self._graph, self._phase = None, phase",
        "self._phase = phase",
        "kernels/test_launches.py",
    ),
    "a shortcut lost in training": Mutant(
        "kernels/fuse_training.py",
        "last, arguments = user, [norm.args[0], others[0]]",
        "last, arguments = user, [norm.args[0]]",
        "kernels/test_fuse_training.py",
    ),
    "a projection's gradient in another layout": Mutant(
        "kernels/layers.py",
        "dy.new_zeros(images, height, width, channels).permute(0, 3, 1, 2)",
        "dy.new_zeros(images, channels, height, width)",
        "kernels/test_layers.py",
    ),
    "a network without a kernel taken for the same": Mutant(
        "kernels/agreement.py",
        "            return False\n    same_shape",
        "            return True\n    same_shape",
        "models/test_inference.py",
    ),
    "a pooling lost in certification": Mutant(
        "kernels/fuse_inference.py",
        "layers[source.target].pool = 2",
        "layers[source.target].pool = 1",
        "kernels/test_fuse_inference.py",
        interpreted=True,
    ),
    "a shortcut lost in certification": Mutant(
        "kernels/layers.py",
        "self.pairs, self.bias32, shortcut)",
        "self.pairs, self.bias32, None)",
        "kernels/test_fuse_inference.py",
        interpreted=True,
    ),
}


if __name__ == "__main__":
    sys.exit(main(MUTANTS, sys.argv[1:]))
