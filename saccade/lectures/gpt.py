"""GPT, R57 to R62: decoder-only language models, completion, few-shot prompts, style, stories, the causal mask."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from saccade import api
from saccade.core import AttentionMap, Role, TokenAxis
from saccade.fewshot.experiment import Trial
from saccade.fewshot.experiment import run as run_trial
from saccade.fewshot.prompts import PromptTemplate
from saccade.interactive.story import read_story
from saccade.interactive.telling import StoryTelling
from saccade.interactive.writer import Writer, WritingOptions
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Trained, Written, train_model
from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.attention import Attention
from saccade.nn.masks import Causal
from saccade.nn.probe import watch
from saccade.nn.transformer import Layer

AUTHORS = {
    "hemingway": ("the man drank . it was good .", "he was old . he fished alone .", "the sea was cold and clear ."),
    "austen": (
        "it is a truth universally acknowledged that a lady must dance .",
        "her feelings were by no means indifferent to him .",
        "such civility deserved the warmest praise .",
    ),
    "doyle": (
        "elementary my dear watson said holmes .",
        "the game is afoot said holmes .",
        "holmes lit his pipe and studied the mud on the boot .",
    ),
}
SHAPE = (
    "data.vocabulary_size=450",
    "model.dim=64",
    "model.depth=2",
    "model.heads=2",
    "model.hidden=128",
    "batch_size=16",
    "data.tokenizer=bpe",
)


def _write_parodies(folder: Path) -> Written:
    draw, lines = random.Random(1), []
    for _ in range(500):
        author = draw.choice(list(AUTHORS))
        lines.append(f"by {author} : " + " ".join(draw.sample(AUTHORS[author], 2)))
    (folder / "parodies.txt").write_text("\n".join(lines) + "\n")
    return folder / "parodies.txt", None


@cache
def parodist() -> Trained:
    """Return a language model of three styles."""
    return train_model(_write_parodies, "language_model", 120, *SHAPE, "model.max_positions=64")


def language_model(show: Demonstration) -> None:
    """R57: text file -> decoder-only model -> text; GPT-3 is a stack of 96 such blocks."""
    trained = parodist()
    trained.show(show, "loss")
    show.plot("training", "step", "loss", {"loss": trained.losses()})
    text = trained.model("by doyle : elementary", temperature=0, max_new_tokens=5).text
    show.table("greedy completion", ("prompt", "text"), [("by doyle : elementary", text)])
    losses = [loss for _, loss in trained.losses()]
    show.below("loss, last / first step", losses[-1] / losses[0], 0.3)
    show.equal("completion of: by doyle : elementary", text.split(), ["my", "dear", "watson", "said", "holmes"])
    shape: dict[str, Any] = {"activation": "gelu", "norm": "layer", "position": "learned", "score": "scaled_dot"}
    with torch.device("meta"):
        gpt3 = GPT(
            GPTConfig(
                dim=12288,
                depth=96,
                heads=96,
                hidden=49152,
                max_positions=2048,
                bias=True,
                tie_embeddings=True,
                embedding_norm=False,
                **shape,
            ),
            50257,
        )
    show.equal("decoder blocks of GPT-3, built without memory", sum(isinstance(m, Layer) for m in gpt3.modules()), 96)
    counted = sum(value.numel() for value in {id(p): p for p in gpt3.parameters()}.values())
    show.close("its parameters, billions", counted / 1e9, 174.6, 0.1)


PROMPT = "The first law of robotics states that a robot"


def completion(show: Demonstration) -> None:
    """R58: a prompt is completed token by token, each with its attention over everything before it."""
    model = api.load(api.get_model("smollm2"), device="cpu")
    pieces, rows, sums, futures = [], list[tuple[str, str, float]](), [], 0
    labels: list[str] = []
    for token in model.stream(PROMPT, temperature=0, max_new_tokens=12, attention=True):
        labels = labels or list(token.prompt)
        weights = list(token.attention.values())[-1]
        row = weights.rows(weights.shape[1] - 1, weights.shape[1]).mean(0)[0]  # mean of the heads
        sums.append(row.sum().item())
        futures += len(row) > len(labels)
        best = int(row[1:].argmax()) + 1  # the first token collects what is not needed
        rows.append((token.token, labels[best], row[best].item()))
        pieces.append(str(token))
        labels.append(token.token)
    text = "".join(pieces)
    show.note(f"{PROMPT}|{text}")
    show.table(
        "what each new token looks at in the last layer, besides the first token",
        ("new token", "looks at", "weight"),
        rows,
    )
    show.equal("tokens that were streamed", len(pieces), 12)
    show.equal(
        "the stream is the completion", text, model(PROMPT, temperature=0, max_new_tokens=12, attention=False).text
    )
    show.close("weights of a token sum to, smallest and largest", [min(sums), max(sums)], [1.0, 1.0], 1e-3)
    show.equal("tokens that look at later ones", futures, 0)


GLAD = ("happy", "glad", "pleased", "ready", "proud", "free")
VERBS = ("work", "speak", "sit", "write", "sing", "wait")
KINDS = ("project", "paper", "song", "film", "book", "plan")
TEST = "I'd be more than happy to work with you in another project ."
CORRECTED = "I'd be more than happy to work with you on another project ."
CHANGES = {"good English": ("in", "on"), "third person": ("you", "them"), "plural": ("I'd", "We'd")}


def _sentence(draw: random.Random) -> str:
    more, another = draw.choice(("more than", "very")), draw.choice(("another", "this", "the"))
    return f"I'd be {more} {draw.choice(GLAD)} to {draw.choice(VERBS)} with you in {another} {draw.choice(KINDS)} ."


def _pair(draw: random.Random, change: str) -> tuple[str, str]:
    while (source := _sentence(draw)) == TEST:
        pass
    old, new = CHANGES[change]
    return source, " ".join(new if word == old else word for word in source.split())


TEMPLATE = PromptTemplate("Input : {input}\nOutput : {output}")


def _write_prompts(folder: Path) -> Written:
    """Write prompts of three examples each, all of one change of the sentence, which only the examples tell."""
    draw, documents = random.Random(2), []
    for _ in range(1500):
        change = draw.choice(list(CHANGES))
        documents.append("\n\n".join(TEMPLATE.example(_pair(draw, change)) for _ in range(3)))
    (folder / "prompts.txt").write_text("\n\n".join(documents) + "\n")
    return folder / "prompts.txt", None


def few_shot(show: Demonstration) -> None:
    """R59: programming by prompt: examples of input and output, then a test input."""
    trained = train_model(_write_prompts, "language_model", 400, *SHAPE, "model.max_positions=128", "model.depth=3")
    draw = random.Random(77)
    examples = [_pair(draw, "good English") for _ in range(2)]
    test = [(TEST, CORRECTED), *(_pair(draw, "good English") for _ in range(9))]
    result = run_trial(Trial(examples, test, TEMPLATE, (0, 1, 2)), trained.model.engine(10))
    show.note(f"$ {trained.command}\n$ saccade fewshot RUN examples.tsv test.tsv")
    show.note(TEMPLATE.prompt(examples[:1], TEST))
    rows = result.rows()
    show.table("right answers", ("examples in the prompt", "%"), [(row["examples"], row["exact"]) for row in rows])
    show.plot(
        "score against the number of examples",
        "examples",
        "%",
        {"right": [(float(row["examples"]), row["exact"]) for row in rows]},
    )
    answers = {answer.count: answer.texts[0] for answer in result.answers}
    show.table(TEST, ("examples", "answer"), list(answers.items()))
    show.equal("with two examples: in -> on", answers[2], CORRECTED)
    show.above("right answers, %, two examples - none", rows[-1]["exact"] - rows[0]["exact"], 30)
    show.above("right answers with two examples, %", rows[-1]["exact"], 80)


def styles(show: Demonstration) -> None:
    """R60: one beginning, continued in several styles and in several branches."""
    trained = parodist()
    rows, branches = [], {}
    for author in AUTHORS:
        prompt = f"by {author} :"
        texts = [trained.model(prompt, temperature=1.0, seed=seed, max_new_tokens=10).text for seed in (1, 2, 3)]
        again = trained.model(prompt, temperature=1.0, seed=1, max_new_tokens=10).text
        branches[author] = texts
        rows += [(prompt, seed, text) for seed, text in enumerate(texts, 1)]
        vocabulary = {word for line in AUTHORS[author] for word in line.split()}
        own = [word in vocabulary for text in texts for word in text.split()]
        show.above(f"{author}: words of that author, %", 100 * sum(own) / len(own), 90)
        show.equal(f"{author}: the same seed gives the same branch", again, texts[0])
    show.table("branches", ("prompt", "seed", "continuation"), rows)
    show.above("different branches of nine", len({text for texts in branches.values() for text in texts}), 5)


class _Page:
    """What a story writes: texts and notes, kept in order."""

    shows_input = False

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []

    def text(self, text: str) -> None:
        self.lines.append(text)

    def end(self, record: Mapping[str, Any]) -> None:
        self.lines.append("\n")

    def note(self, message: str) -> None:
        self.notes.append(message)

    def interruptible(self) -> Callable[[], bool]:
        return lambda: False


def _write_adventures(folder: Path) -> Written:
    draw, lines = random.Random(3), []
    places, things = ("forest", "cave", "tower", "village"), ("lamp", "sword", "key", "map")
    for _ in range(500):
        place, thing = draw.choice(places), draw.choice(things)
        lines.append(f"you are in a {place} .\n\n> You take the {thing} .\n\nyou hold the {thing} in the {place} .\n")
    (folder / "adventures.txt").write_text("\n".join(lines))
    return folder / "adventures.txt", None


def story(show: Demonstration) -> None:
    """R61: an interactive story: turns that begin with `> You`, context kept, saved, loaded and undone."""
    trained = train_model(_write_adventures, "language_model", 120, *SHAPE, "model.max_positions=48")
    page = _Page()
    writer = Writer(trained.model.engine(1), WritingOptions(max_new_tokens=12, temperature=0.0), ("\n>",))
    telling = StoryTelling(writer, page, "you are in a cave .", form="text")
    telling.handle("take the lamp .")
    first = telling.story.told[-1]
    show.equal("a line of the player becomes a turn", first.action, "You take the lamp .")
    show.holds("the continuation knows the thing", "lamp" in first.text)
    for thing in ("sword", "key", "map", "lamp"):
        telling.handle(f"take the {thing} .")
    show.equal("turns that were told", len(telling.story.told), 5)
    full = [note for note in page.notes if "context full" in note]
    show.holds("the limit of the context is said", bool(full))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "story.json"
        telling.handle(f"/save {path}")
        saved = read_story(path)
        show.holds("a story that was saved is the same when loaded", saved == telling.story)
        telling.handle("/undo")
        show.equal("turns after /undo", len(telling.story.told), 4)
        telling.handle(f"/load {path}")
        show.equal("turns after /load", len(telling.story.told), 5)
    show.note(telling.story.text())
    show.note(full[0] if full else "")


@torch.no_grad()
def both_masks(show: Demonstration) -> None:
    """R62: self-attention next to masked self-attention, on the same text with the same weights."""
    words = ["a", "robot", "must", "obey", "the", "orders", "given", "it"]
    attention, x = Attention(32, 2), torch.randn(1, len(words), 32)
    axis, weights = TokenAxis(Role.TEXT, tuple(words)), {}
    for name, mask in (("self-attention", None), ("masked self-attention", Causal())):
        with watch(attention) as maps:
            attention(x, mask=mask)
        weights[name] = maps[""].rows()[0]
        show.map(
            name, "each word (row) over all words", AttentionMap(name, weights[name].mean(0, keepdim=True), axis, axis)
        )
    plain, masked = weights.values()
    show.equal("upper triangle with the mask: largest weight", masked.triu(1).max().item(), 0.0)
    show.above("upper triangle without it: smallest weight", plain[:, *torch.triu_indices(8, 8, 1)].min().item(), 0.0)
    show.close("rows of both sum to 1", [plain.sum(-1).min().item(), masked.sum(-1).min().item()], [1.0, 1.0], 1e-5)
    lower = plain.tril()
    show.same("masked = the lower triangle, normalized again", masked, lower / lower.sum(-1, keepdim=True), 1e-6)
    show.equal(
        "the last word sees the same in both", bool(torch.allclose(plain[:, -1], masked[:, -1], atol=1e-6)), True
    )


ROWS = (
    Row("R57", "Decoder-only language model; 96 blocks in GPT-3", language_model, 12),
    Row(
        "R58",
        "Prompt and completion, with the attention of each new token",
        completion,
        15,
        ("smollm2",),
        extras=("gguf",),
        page=f"try?model=smollm2&prompt={PROMPT.replace(' ', '+')}",
    ),
    Row(
        "R59",
        "Programming by prompt: examples, then a test input",
        few_shot,
        25,
        also="saccade fewshot --demo --model smollm2",
    ),
    Row("R60", "Style continuation: one prompt, several branches", styles, 12),
    Row("R61", "Interactive story: turns, context, save, load, undo", story, 12, also="saccade story smollm2"),
    Row("R62", "Self-attention next to masked self-attention", both_masks, page="lessons"),
)
