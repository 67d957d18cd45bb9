import pytest
import torch

from tertulia.core.errors import UsageError
from tertulia.models.device import resolve_device


def test_auto_prefers_cuda_then_mps_then_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert resolve_device("auto") == torch.device(expected)


def test_a_device_that_is_missing_or_unknown_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="'cuda' is not available") as caught:
        resolve_device("cuda")
    assert "cpu" in str(caught.value.hint)
    with pytest.raises(UsageError, match="Unknown device 'tpu'"):
        resolve_device("tpu")
