"""Fields that ask for a beam search instead of drawing tokens."""

from typing import Any, Literal

from pydantic import Field

from scheduler.api.errors import invalid
from scheduler.api.fields import MAX_CHOICES, GenerationFields
from scheduler.core.request import BeamParams, EarlyStopping

MIN_BEAMS = 2
MAX_LENGTH_PENALTY = 10

EARLY_STOPPING: dict[object, EarlyStopping] = {
    True: EarlyStopping.ALWAYS,
    False: EarlyStopping.HEURISTIC,
    "never": EarlyStopping.NEVER,
}
OWN_FIELDS = ("beam_width", "length_penalty", "early_stopping")
REFUSED_FIELDS = (
    *("stream", "stop", "top_p", "top_k", "min_p", "logit_bias", "allowed_token_ids", "bad_words"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "response_format", "regex", "grammar"),
)
"""What a search cannot do: it tells nothing before it is over, and looks at the model's own probabilities."""


class BeamFields(GenerationFields):
    """With ``use_beam_search`` the ``n`` outputs of the best scores are returned, best first."""

    use_beam_search: bool = Field(default=False, description="search for the most probable outputs")
    beam_width: int | None = Field(
        default=None, ge=MIN_BEAMS, le=MAX_CHOICES, description="beams of the search; default: best_of, or else n"
    )
    length_penalty: float = Field(
        default=1.0,
        ge=-MAX_LENGTH_PENALTY,
        le=MAX_LENGTH_PENALTY,
        description="score = sum of log-probabilities / generated length ** length_penalty",
    )
    early_stopping: bool | Literal["never"] = Field(
        default=False,
        description="ends the search when it has enough outputs (true), when a better one is unlikely (false), "
        "or when there can be no better one (never)",
    )


def beams_of(body: BeamFields, best_of: int | None) -> BeamParams | None:
    """The search that is asked for. Raises ``ApiError`` 400 that names the field, its value and what it must be."""
    if not body.use_beam_search:
        for name in OWN_FIELDS:
            if getattr(body, name) != _default_of(body, name):
                raise invalid(f"{name} is only accepted with use_beam_search: true", param=name)
        return None
    _check_refused(body)
    width = body.beam_width or best_of or body.n
    if best_of is not None and best_of != width:
        raise invalid(f"best_of is {best_of}, but must be beam_width, which is {width}, or absent", param="best_of")
    if width < max(body.n, MIN_BEAMS):
        raise invalid(f"beam_width is {width}, but must be at least {MIN_BEAMS} and n", param="beam_width")
    return BeamParams(width, body.length_penalty, EARLY_STOPPING[body.early_stopping])


def _check_refused(body: BeamFields) -> None:
    if "temperature" in body.model_fields_set and body.temperature != 0:
        raise invalid(
            f"temperature is {body.temperature:g}, but with use_beam_search: true must be 0 or absent",
            param="temperature",
        )
    for name in REFUSED_FIELDS:
        value, default = getattr(body, name), _default_of(body, name)
        if value != default and (name, value) != ("top_k", -1):
            raise invalid(f"{name} is not accepted with use_beam_search: true", param=name)


def _default_of(body: BeamFields, name: str) -> Any:  # noqa: ANN401 - of whatever type the field has
    return type(body).model_fields[name].default
