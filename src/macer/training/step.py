"""One step of Algorithm 1, and the state it acts on."""

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from macer.data.sets import Split
from macer.kernels.fuse_training import for_training
from macer.kernels.launches import CapturedStep, Packed, pack, unpack
from macer.losses import LOSSES, Batch, completed, find_objective
from macer.losses.batch import one_per_image
from macer.models.inference import resolve_precision
from macer.models.weights import Tensors
from macer.recipes import TrainRecipe
from macer.recipes.schedules import learning_rate, trade_off
from macer.runs.run import Metrics
from macer.smoothing.streams import Purpose, fill_normal, key, stream
from macer.system.errors import Mistake
from macer.system.processes import SINGLE, Ranks
from macer.training.augment import augment
from macer.training.average import update_average
from macer.training.batches import Resident, as_floats, feed
from macer.training.epochs import updated_weights, weights_are_due
from macer.training.freezing import freeze
from macer.training.optimizers import make_optimizer
from macer.training.plan import Plan, epoch_plan, inputs_of_step, part_of_batch
from macer.training.pseudo_labels import loss_weights

DRAW_WEIGHTS = "odds"  # in checkpoints, as they were named first


class Trainer:
    """The state of a training and one step of it; all of it is tensors and one integer."""

    def __init__(
        self,
        recipe: TrainRecipe,
        model: nn.Module,
        split: Split,
        device: torch.device,
        *,
        teacher: nn.Module | None = None,
        ranks: Ranks = SINGLE,
        new: Collection[str] = (),
    ) -> None:
        self.recipe = recipe = completed(recipe)
        self.device = device
        self.ranks = ranks
        self.size = part_of_batch(recipe, ranks)
        bf16 = split.are_images and resolve_precision(recipe.precision, device) == "bf16"
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=bf16)
        self.model = model.to(device)
        shape = tuple(split.images.shape[1:])
        if split.are_images:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.frozen = freeze(model, recipe)
        # A fused network has parts of its own, which would not stay in eval mode.
        fused = bf16 and device.type == "cuda" and not self.frozen.names
        self.network = for_training(model, (shape[0], shape[1], shape[2])) if fused else model
        self.feed = feed(split.images, recipe, device, self.size)
        self.labels = torch.from_numpy(split.labels).to(device)
        self.loss_weights = loss_weights(len(split.images), recipe).to(device)
        self.draw_weights = torch.ones(len(split.images), dtype=torch.float64)
        self.teacher = teacher
        self._inputs = inputs_of_step(self.size, device)
        self.optimizer = make_optimizer(
            recipe, model, self._inputs.lr, new=new, new_lr=self._inputs.new_lr
        )
        self._objective = find_objective(recipe.loss.name)
        self._settings: dict[str, Any] = dict(recipe.loss)
        if "lam" in recipe.loss:
            self._settings["lam"] = self._inputs.lam  # λ at this step; `_prepare` writes it
        self._generator = torch.Generator(device)
        self.average = {name: t.clone() for name, t in model.state_dict().items()}
        self.step = 0
        # Unlike the paper: a last batch that is not full is left out, so that every step has one
        # shape; each epoch leaves out other images.
        self.steps_per_epoch = len(split.images) // recipe.batch
        self.samples = recipe.batch * recipe.k
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        # A user's own loss may read its tensors on the host, which a recorded graph cannot; nor is
        # what processes send each other recorded.
        self._run: Callable[[], None] = self._next_step
        if device.type == "cuda" and recipe.loss.name in LOSSES and ranks.count == 1:
            self._run = CapturedStep(self._next_step, [self._generator])

    @property
    def images(self) -> Tensor:
        """All images, on the device; a recipe that needs them is refused for images in files."""
        assert isinstance(self.feed, Resident)
        return self.feed.images

    @property
    def epoch(self) -> int:
        """Whole epochs trained."""
        return self.step // self.steps_per_epoch

    @property
    def at_end_of_epoch(self) -> bool:
        """Whether the last step was an epoch's last."""
        return self.step % self.steps_per_epoch == 0

    @property
    def all_samples(self) -> int:
        """Noisy samples in the whole training."""
        return self.recipe.epochs * self.steps_per_epoch * self.samples

    def rest_of_epoch(self) -> Iterator[None]:
        """Take the steps that are left of this epoch."""
        if self.at_end_of_epoch and weights_are_due(self.recipe, self.epoch):
            self._update_draw_weights()
        plan = self.plan(self.epoch)
        if isinstance(self._run, CapturedStep):
            self._run.record_anew_if_changed(self._objective.phase(self.epoch, self.recipe.loss))
        begin = self.step % self.steps_per_epoch * self.size
        with closing(self.feed.batches(plan.order[begin:], self.epoch)) as batches:
            for start in range(begin, len(plan.order), self.size):
                next(batches)
                self._prepare(plan.rows(start, start + self.size))
                self._run()
                self.step += 1
                yield

    def plan(self, epoch: int) -> Plan:
        """The images of an epoch that this process trains on."""
        return epoch_plan(self.recipe, epoch, self.draw_weights, self.ranks, self.device)

    def _prepare(self, plan: Plan) -> None:
        """Put what distinguishes this step from others where `_next_step` finds it."""
        recipe, inputs = self.recipe, self._inputs
        epoch = self.step / self.steps_per_epoch
        inputs.rows.copy_(plan.order)
        inputs.offsets.copy_(plan.offsets)
        inputs.flips.copy_(plan.flips)
        inputs.lr.fill_(learning_rate(recipe, epoch))
        inputs.new_lr.fill_(learning_rate(recipe, epoch) * recipe.new_lr_factor)
        inputs.lam.fill_(trade_off(recipe, epoch))
        # Early steps average over fewer weights, or θ̄ would stay near the initial ones.
        inputs.decay.fill_(min(recipe.ema, (1 + self.step) / (10 + self.step)))
        for count, numbers in inputs.uniform.items():
            numbers.copy_(self._numbers(count))
        network = stream(recipe.seed, Purpose.NETWORK, self.step, self.ranks.rank)
        torch.manual_seed(int(network.integers(2**63)))
        self._generator.manual_seed(key(recipe.seed, Purpose.TRAINING, self.step, 0))

    def _next_step(self) -> None:
        """One step, on the device alone."""
        rows, recipe = self._inputs.rows, self.recipe
        images = self.feed.picked(rows)
        if recipe.crop or recipe.flip:
            images = augment(images, self._inputs.offsets, self._inputs.flips, padding=recipe.crop)
        self._take_step(as_floats(images), self.labels[rows], self.loss_weights[rows])

    def _update_draw_weights(self) -> None:
        """Drop hard images, or measure how hard the others have become.          [Sun+24]"""
        with self.autocast:
            self.draw_weights = updated_weights(
                self.recipe, self.epoch, self.draw_weights, self.model, self.images, self.labels
            )
        self.ranks.copy_from_first(self.draw_weights)  # GPUs may differ in the last bits of logits

    def _take_step(self, images: Tensor, labels: Tensor, weights: Tensor) -> None:
        """Lines 4 to 9 of Algorithm 1.                                         [Zhai+20]"""
        self.network.train()
        if self.frozen.parts:
            self.frozen.keep_in_eval_mode()
        statistics = pack(self.model.buffers())
        batch = Batch(
            network=self.network,
            images=images,
            labels=labels,
            noise=self._noise(len(images)),
            recipe=self.recipe,
            epoch=self.step / self.steps_per_epoch,
            uniform=self._uniform,
            teacher=self.teacher,
        )
        with self.autocast:
            losses = one_per_image(self._objective.loss(batch, **self._settings), batch)
            loss = (weights * losses).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._update(loss.detach(), statistics)

    def _noise(self, images: int) -> Tensor:
        """η_ij ~ N(0, σ²I), k of each image, (images, k, channels, height, width).  [line 4]"""
        shape = tuple(self.feed.images.shape[1:])
        # Drawn for the whole batch; this process takes its part. Images' channels last in memory.
        has_channels = len(shape) == 3
        drawn = (*shape[1:], shape[0]) if has_channels else shape
        noise = torch.empty((images * self.ranks.count, self.recipe.k, *drawn), device=self.device)
        if self.device.type == "cpu":
            fill_normal(
                noise, seed=self.recipe.seed, purpose=Purpose.TRAINING, image=self.step, chunk=0
            )
        else:
            noise.normal_(generator=self._generator)
        noise = self.ranks.part(noise).mul_(self.recipe.sigma)
        return noise.movedim(-1, 2) if has_channels else noise

    def _uniform(self, count: int) -> Tensor:
        """The step's random numbers in [0, 1) for a loss."""
        if count not in self._inputs.uniform:
            self._inputs.uniform[count] = self._numbers(count).to(self.device)
        return self._inputs.uniform[count]

    def _numbers(self, count: int) -> Tensor:
        random = stream(self.recipe.seed, Purpose.OBJECTIVE, self.step)
        return self.ranks.part(
            torch.from_numpy(random.random(count * self.ranks.count, np.float32))
        )

    def _update(self, loss: Tensor, statistics: Packed) -> None:
        """One step of the optimiser, or none if the loss or a gradient is not finite.

        The choice is made on the device, without waiting for it: the optimiser skips a step whose
        `found_inf` is 1, and the batch-norm statistics go back to what they were.
        """
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        self.ranks.average([loss, *gradients])
        norm = nn.utils.get_total_norm(gradients)
        bad = ~(loss + norm).isfinite()
        if self.recipe.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.recipe.clip, norm)
        self.optimizer.found_inf = bad.float()  # type: ignore[attr-defined]
        self.optimizer.step()
        after = self._shared(pack(self.model.buffers()), statistics)
        unpack({t: torch.where(bad, statistics[t], after[t]) for t in after}, self.model.buffers())
        if self.recipe.ema:
            share = torch.where(bad, 0.0, 1 - self._inputs.decay)
            update_average(self.average, self.model, share, self.frozen.names)
        self.loss_sum += torch.where(bad, torch.zeros_like(loss), loss)
        self.skipped += bad

    def _shared(self, after: Packed, before: Packed) -> Packed:
        """The buffers before the step, plus the mean of their changes over all processes.

        Buffers that do not change so stay the same to the last bit.
        """
        if self.ranks.count == 1:
            return after
        moved = {t: after[t] - before[t] for t in after if t.is_floating_point}
        self.ranks.average(list(moved.values()))
        return after | {t: before[t] + moved[t] for t in moved}

    def close_epoch(self) -> Metrics:
        """The epoch's metrics; this waits for the device."""
        skipped, steps = int(self.skipped), self.steps_per_epoch
        self._check_finite(skipped)
        # The schedules as they were in the epoch's last step.
        epoch = (self.step - 1) / steps
        metrics = {
            "epoch": self.epoch,
            "step": self.step,
            "loss": float(self.loss_sum) / (steps - skipped),
            "lr": learning_rate(self.recipe, epoch),
            "lam": trade_off(self.recipe, epoch),
            "skipped_steps": skipped,
        }
        if self.recipe.drop_epoch:
            metrics["dropped_images"] = int((self.draw_weights == 0).sum())
        self.loss_sum.zero_()
        self.skipped.zero_()
        return metrics

    def _check_finite(self, skipped: int) -> None:
        """Refuse to go on if half of the steps were skipped, or if a weight is not finite."""
        steps, epoch = self.steps_per_epoch, self.epoch
        if 2 * skipped >= steps:
            raise Mistake(
                f"the loss was not finite in {skipped} of the {steps} steps of epoch {epoch}; "
                "lower lr or lam, ramp lam, or set clip"
            )
        finite = torch.stack([value.isfinite().all() for value in self.weights().values()])
        if not finite.all():
            name = list(self.weights())[int(finite.int().argmin())]
            raise Mistake(
                f"{name} was not finite after epoch {epoch}; lower lr, weight_decay or sigma"
            )

    def weights(self) -> Tensors:
        """The model's weights, or their average if the recipe asks for it."""
        return self.average if self.recipe.ema else self.model.state_dict()

    def averaged_model(self) -> nn.Module:
        """The network with `weights`."""
        if not self.recipe.ema:
            return self.model
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.average)
        return model

    def state(self) -> tuple[Tensors, dict[str, int]]:
        """Everything a later process needs to go on from here."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items()}
        tensors |= {f"momentum.{name}": t for name, t in self._momentum().items()}
        tensors |= {f"average.{name}": t for name, t in self.average.items() if self.recipe.ema}
        tensors |= {DRAW_WEIGHTS: self.draw_weights} if self.recipe.drop_epoch else {}
        tensors |= {"loss_sum": self.loss_sum, "skipped": self.skipped}
        return tensors, {"step": self.step}

    def restore(self, tensors: Tensors, state: dict[str, int]) -> None:
        """Go back to a saved state."""
        self.model.load_state_dict(_under("model.", tensors))
        for name, buffer in self._momentum().items():
            buffer.copy_(tensors[f"momentum.{name}"])
        for name, value in _under("average.", tensors).items():
            self.average[name].copy_(value)
        self.draw_weights.copy_(tensors.get(DRAW_WEIGHTS, self.draw_weights))
        self.loss_sum.copy_(tensors["loss_sum"])
        self.skipped.copy_(tensors["skipped"])
        self.step = state["step"]

    def _momentum(self) -> Tensors:
        return {
            name: self.optimizer.state[p]["momentum_buffer"]
            for name, p in self.model.named_parameters()
            if "momentum_buffer" in self.optimizer.state.get(p, {})
        }


def _under(prefix: str, tensors: Tensors) -> Tensors:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
