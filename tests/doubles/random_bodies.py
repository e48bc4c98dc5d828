"""Random bodies of completions and chats: every field, mostly with values that are served."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

TEXT = "The capital of France is Paris and a river runs through it 東京 😀 été 1 2 3 , . !"
WORDS = (*TEXT.split(), "\n")
SHARED = "You are a patient librarian who answers every question about books in one sentence. "
VOCAB_SIZE = 40_000  # of it, ids that every model here has
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
GRAMMARS: list[dict[str, Any]] = [
    {"regex": "[a-c]{1,4}"},
    {"grammar": 'start: "yes" | "no"'},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
]

Draw = Callable[[Random], Any]


def text(random: Random, most_words: int = 40) -> str:
    shared = SHARED if random.random() < 0.4 else ""
    return shared + " ".join(random.choices(WORDS, k=random.randint(1, most_words)))


def token_ids(random: Random) -> list[int]:
    return [random.randrange(VOCAB_SIZE) for _ in range(random.randint(1, 30))]


def prompt(random: Random) -> Any:
    kind = random.randrange(5)
    several = range(random.randint(1, 3))
    forms = (text(random), text(random), token_ids(random), [text(random) for _ in several])
    return forms[kind] if kind < 4 else [token_ids(random) for _ in several]


def messages(random: Random) -> list[dict[str, Any]]:
    turns = [{"role": "user", "content": text(random, 15)}]
    return ([{"role": "system", "content": SHARED}] if random.random() < 0.5 else []) + turns


SAMPLING: Mapping[str, Draw] = {
    "temperature": lambda random: random.choice([0, 0.5, 1, 2]),
    "top_p": lambda random: random.choice([0.1, 0.9, 1]),
    "top_k": lambda random: random.choice([-1, 0, 1, 40]),
    "min_p": lambda random: random.choice([0, 0.1, 1]),
    "seed": lambda random: random.randrange(-100, 100),
    "presence_penalty": lambda random: random.uniform(-2, 2),
    "frequency_penalty": lambda random: random.uniform(-2, 2),
    "repetition_penalty": lambda random: random.uniform(0.5, 2),
    "logit_bias": lambda random: {str(random.randrange(VOCAB_SIZE)): random.uniform(-100, 100) for _ in range(3)},
    "allowed_token_ids": lambda random: [random.randrange(VOCAB_SIZE) for _ in range(20)],
    "bad_words": lambda random: random.choices(WORDS[:10], k=2),
}
ENDING: Mapping[str, Draw] = {
    "stop": lambda random: random.choice(["e", [" a", "the"], [".", "\n", "東"]]),
    "stop_token_ids": lambda random: [random.randrange(VOCAB_SIZE)],
    "include_stop_str_in_output": lambda random: random.random() < 0.5,
    "min_tokens": lambda random: random.randint(0, 2),
    "ignore_eos": lambda random: random.random() < 0.5,
}
TELLING: Mapping[str, Draw] = {
    "prompt_logprobs": lambda random: random.randint(0, 3),
    "return_token_ids": lambda random: random.random() < 0.5,
    "skip_special_tokens": lambda random: random.random() < 0.5,
    "truncate_prompt_tokens": lambda random: random.randint(1, 30),
    "add_special_tokens": lambda random: random.random() < 0.5,
}
CALLING: Mapping[str, Draw] = {
    "model": lambda random: "default",
    "n": lambda random: random.randint(1, 4),
    "user": lambda random: "somebody",
    "priority": lambda random: random.randint(-2, 2),
    "cache_salt": lambda random: random.choice("AB"),
    "request_id": lambda random: f"soak-{random.randrange(10**9)}",
}
SHARED_FIELDS = SAMPLING | ENDING | TELLING | CALLING
BEAMS: Mapping[str, Draw] = {
    "use_beam_search": lambda random: True,
    "beam_width": lambda random: random.randint(2, 4),
    "length_penalty": lambda random: random.uniform(-1, 2),
    "early_stopping": lambda random: random.choice([True, False, "never"]),
}
COMPLETION: Mapping[str, Draw] = {
    "best_of": lambda random: random.randint(1, 5),
    "echo": lambda random: random.random() < 0.5,
    "logprobs": lambda random: random.randint(0, 5),
    "suffix": lambda random: "",
}
CHAT: Mapping[str, Draw] = {
    "logprobs": lambda random: True,
    "top_logprobs": lambda random: random.randint(0, 5),
    "metadata": lambda random: {"a": "b"},
    "store": lambda random: False,
    "service_tier": lambda random: "auto",
    "safety_identifier": lambda random: "somebody",
    "modalities": lambda random: ["text"],
    "tools": lambda random: [],
    "tool_choice": lambda random: "none",
    "functions": lambda random: [],
    "function_call": lambda random: "none",
    "add_generation_prompt": lambda random: True,
    "continue_final_message": lambda random: False,
}
ALWAYS = {"prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options"}
CONSTRAINING = {"regex", "grammar", "response_format"}


def beam_search(random: Random, most_tokens: int) -> dict[str, Any]:
    fields = CALLING | TELLING | {"logprobs": COMPLETION["logprobs"], "echo": COMPLETION["echo"]}
    names = random.sample(sorted(fields), k=random.randint(0, 4))
    own = {name: draw(random) for name, draw in BEAMS.items()}
    return (
        {"max_tokens": random.randint(1, most_tokens), "prompt": text(random)}
        | own
        | {name: fields[name](random) for name in names}
    )


def random_call(random: Random, most_tokens: int) -> tuple[str, dict[str, Any]]:
    """A path and a body; about one in five is refused for fields that contradict each other or the pool's size."""
    is_chat = random.random() < 0.3
    if not is_chat and random.random() < 0.1:
        return "/v1/completions", beam_search(random, most_tokens)
    fields = SHARED_FIELDS | (CHAT if is_chat else COMPLETION)
    names = random.sample(sorted(fields), k=random.randint(0, 6))
    body: dict[str, Any] = {"max_tokens": random.randint(0, most_tokens)} | {n: fields[n](random) for n in names}
    if random.random() < 0.1 and "allowed_token_ids" not in body:
        body |= random.choice(GRAMMARS)
    if random.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": random.random() < 0.5}}
    if is_chat:
        body["max_completion_tokens"] = body["max_tokens"]
        return "/v1/chat/completions", body | {"messages": messages(random)}
    return "/v1/completions", body | {"prompt": prompt(random)}
