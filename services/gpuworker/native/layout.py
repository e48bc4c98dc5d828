"""Where each tensor of a model lies in a piece of memory that holds all of them packed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuworker.native.formats import WeightFormat, choose_weights, format_of
from gpuworker.native.library import StepLibrary
from gpuworker.settings import Dtype, Weights
from gpuworker.weights.source import WeightSource, tensor_shapes

_ALIGNMENT = 64
_VECTOR_BYTES = 4  # of an element: norms are float32


@dataclass(frozen=True, slots=True)
class Place:
    """A packed matrix, or a vector of float32, which has no format and one output."""

    name: str
    weight_format: WeightFormat | None
    num_outputs: int
    num_inputs: int
    offset: int  # bytes
    num_bytes: int


def lay_out(source: WeightSource, weights: Weights, dtype: Dtype, library: StepLibrary) -> tuple[Place, ...]:
    """Places for all tensors of ``source``, in the order in which a step reads them."""
    shapes = dict(tensor_shapes(source.config))
    kinds = {name: source.stored(name).kind for name, shape in shapes.items() if len(shape) == 2}
    chosen = choose_weights(weights, set(kinds.values()), dtype)
    places: list[Place] = []
    offset = 0
    for name, shape in shapes.items():
        num_outputs, num_inputs = shape if len(shape) == 2 else (1, *shape)
        weight_format = format_of(kinds[name], chosen, dtype) if name in kinds else None
        if weight_format is None:
            num_bytes = num_inputs * _VECTOR_BYTES
        else:
            num_bytes = library.packed_bytes(weight_format, num_outputs, num_inputs)
        places.append(Place(name, weight_format, num_outputs, num_inputs, offset, num_bytes))
        offset += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(places)


def total_bytes(places: Iterable[Place]) -> int:
    """Bytes from the first place to the end of the last."""
    return max(place.offset + place.num_bytes for place in places)


def formats(places: Iterable[Place]) -> Iterator[WeightFormat]:
    """The formats of the matrices."""
    return (place.weight_format for place in places if place.weight_format is not None)
