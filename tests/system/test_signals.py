import signal
import threading

import pytest

from macer.system.errors import Stopped
from macer.system.signals import catching_signals, signals_deferred, sigterm_raises

BOTH = (signal.SIGTERM, signal.SIGINT)


def handlers():
    return [signal.getsignal(number) for number in BOTH]


@pytest.fixture
def terminations():
    """The SIGTERMs that reached the process itself."""
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    yield received
    signal.signal(signal.SIGTERM, before)


# law


def test_signals_are_collected_and_the_handlers_restored():
    before = handlers()
    with catching_signals() as caught:
        for number in BOTH:
            signal.raise_signal(number)
        assert caught == list(BOTH)
    assert handlers() == before


def test_a_second_signal_has_its_usual_effect(terminations):
    with catching_signals() as caught:
        signal.raise_signal(signal.SIGTERM)
        assert (caught, terminations) == ([signal.SIGTERM], [])
        signal.raise_signal(signal.SIGTERM)
    assert (caught, terminations) == ([signal.SIGTERM], [signal.SIGTERM])


def test_a_deferred_signal_takes_effect_after_the_block(terminations):
    with signals_deferred():
        signal.raise_signal(signal.SIGTERM)
        assert terminations == []
    assert terminations == [signal.SIGTERM]


def test_a_block_that_ends_before_a_signal_is_not_disturbed(terminations):
    with signals_deferred():
        pass
    assert terminations == []


def test_sigterm_raises_once_and_only_in_the_block(terminations):
    finished = []
    with pytest.raises(Stopped, match="stopped; what was finished is saved") as stop:  # noqa: SIM117
        with sigterm_raises():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                finished.append(True)
    assert stop.value.signal_number == signal.SIGTERM and finished == [True]
    signal.raise_signal(signal.SIGTERM)
    assert terminations == [signal.SIGTERM]


def test_errors_that_are_handled_do_not_hide_a_stop():
    assert not issubclass(Stopped, Exception)


@pytest.mark.parametrize("block", [catching_signals, signals_deferred, sigterm_raises])
def test_other_threads_leave_the_handlers_alone(block):
    """Python lets only the main thread set them."""
    seen = []

    def run():
        with block():
            seen.append(handlers())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [handlers()]
