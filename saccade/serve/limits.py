"""Limits of a request; one beyond them is refused with both numbers."""

TEXT_BODY = 4 << 20  # bytes of a request for text or vectors
TASK_BODY = 32 << 20  # bytes of a request with images or sound
ALL_BODIES = 256 << 20  # bytes of all bodies that are held at once
DEPTH = 32  # of nested JSON
VALUES = 1 << 18  # of a body of JSON: each takes far more memory than its bytes
BODY_SECONDS = 30.0  # in which a body must arrive
STALL = 20.0  # seconds after which a client that reads nothing is given up

MAX_TOKENS = 1 << 14  # generated for one choice
CHOICES = 32  # n
PROMPTS = 64  # of one request
MESSAGES = 1024  # of one conversation
STOPS, STOP_LENGTH = 4, 256  # stop strings, and characters of one
TOP_LOGPROBS = 20
LOOKUP = 64  # tokens guessed at each step
METADATA = 16  # entries, as OpenAI has it
BIASES = 1024  # tokens with a logit_bias
INPUTS = 64  # examples, or texts to embed, of one request
PARTS = 256  # of a multipart form
TOKENS = 1 << 14  # of a text, for a model that reads any number
WEIGHTS = 1 << 22  # of all attention maps of one response
OPTIONS = {"max_new_tokens": 1 << 12, "beam": 64, "samples": 100, "n_best": 100}  # that multiply the work
