"""Steps that are replayed and tensors that are copied as one."""

from types import SimpleNamespace

import torch

from macer.kernels.launches import WARM_UP, CapturedStep, pack, unpack


def test_unpacked_values_are_the_packed_ones_in_every_type_and_layout():
    tensors = [
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.arange(4),
        torch.randn(3, 4).T,
        torch.tensor(7),
        torch.randn(0),
    ]
    expected = [tensor.clone() for tensor in tensors]
    packed = pack(tensors)
    assert {dtype: len(values) for dtype, values in packed.items()} == {
        torch.float32: 132,
        torch.int64: 5,
    }
    for tensor in tensors:
        tensor.zero_()
    unpack(packed, tensors)
    assert all(map(torch.equal, tensors, expected))


def test_a_step_is_recorded_after_the_warm_up_and_again_when_its_phase_changes(monkeypatch):
    events = []
    graph = SimpleNamespace(replay=lambda: events.append("replay"))
    monkeypatch.setattr(CapturedStep, "_recorded", lambda _: events.append("record") or graph)
    step = CapturedStep(lambda: events.append("run"), [])
    for phase in [1] * (WARM_UP + 2) + [2]:
        step.record_anew_if_changed(phase)
        step()
    assert events == ["run"] * WARM_UP + ["record", "replay", "replay", "record", "replay"]
