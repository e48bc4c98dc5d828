"""In what products are computed."""

from collections.abc import Collection
from enum import IntEnum

from gpuworker.errors import SettingsInvalid
from gpuworker.native.formats import WeightFormat
from gpuworker.settings import Activations, Dtype


class Precision(IntEnum):
    """``octavo_precision``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2


_OF_DTYPE = {Dtype.FLOAT32: Precision.FLOAT32, Dtype.BFLOAT16: Precision.BFLOAT16}


def choose_precision(asked: Activations, formats: Collection[WeightFormat], dtype: Dtype) -> Precision:
    """That of a model whose matrices have ``formats``. Raises ``SettingsInvalid`` where int8 is asked but cannot be."""
    if asked is not Activations.INT8:
        return _OF_DTYPE[dtype]
    others = sorted(weight_format.name.lower() for weight_format in formats if not weight_format.is_quantized)
    if others:
        raise SettingsInvalid(f"--activations is int8, but it needs quantized weights; some are {', '.join(others)}")
    return Precision.INT8
