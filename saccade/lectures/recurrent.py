"""RNN sequence to sequence, R08 to R11: one vector for the whole source, its limit, and attention instead."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import torch

from saccade.decode.search import Search
from saccade.lectures._row import Demonstration, Row
from saccade.lectures._training import Trained, Written, train_model
from saccade.look.figure import AttentionFigure
from saccade.nn.attention import Attention
from saccade.tasks import translation

SENTENCE, TRANSLATION = "we are eating bread", "estamos comiendo pan"
SUBJECTS = {"we are": "estamos", "they are": "están", "I am": "estoy", "she is": "está"}
VERBS = {"eating": "comiendo", "buying": "comprando", "selling": "vendiendo"}
FOOD = {
    **{"bread": "pan", "rice": "arroz", "milk": "leche", "cheese": "queso", "soup": "sopa", "fish": "pescado"},
    **{"meat": "carne", "fruit": "fruta", "butter": "mantequilla", "sugar": "azúcar", "salt": "sal", "oil": "aceite"},
    **{"honey": "miel", "garlic": "ajo", "onion": "cebolla", "lemon": "limón", "apple": "manzana", "pear": "pera"},
    **{"melon": "melón", "grape": "uva", "corn": "maíz", "beans": "frijoles", "ham": "jamón", "eggs": "huevos"},
}
LENGTHS = (1, 2, 4, 8, 12)  # things to eat in a sentence
ROWS_OF_FILE, TESTED = 3000, 30
STEPS = 250
SHAPE = ("model.rnn.dim=48", "model.rnn.hidden=64", "model.rnn.dropout=0", "label_smoothing=0")
LOOP = ("batch_tokens=1000", "data.tokenizer=words", "train.optim.warmup=20")


def phrase(draw: random.Random, things: int) -> tuple[str, str]:
    """Return a sentence and its translation: somebody eats, buys or sells a list of things, none of them twice."""
    subject, verb = draw.choice(list(SUBJECTS)), draw.choice(list(VERBS))
    food = draw.sample(list(FOOD), things)
    target = [SUBJECTS[subject], VERBS[verb], *(FOOD[word] for word in food)]
    return " ".join((subject, verb, *food)), " ".join(target)


def write_phrases(folder: Path) -> Written:
    """Write the phrase book, and other phrases for validation; one of the pairs is that of the lecture."""
    draw = random.Random(1)
    longest = max(LENGTHS)
    pairs = [(SENTENCE, TRANSLATION)] * 20 + [phrase(draw, draw.randint(1, longest)) for _ in range(ROWS_OF_FILE)]
    valid = [phrase(draw, draw.randint(1, longest)) for _ in range(40)]
    for name, rows in (("phrases.tsv", pairs), ("valid.tsv", valid)):
        (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return folder / "phrases.tsv", folder / "valid.tsv"


@cache
def translator(architecture: str) -> Trained:
    """Return a translator that was trained on the phrase book."""
    return train_model(
        write_phrases, "translation", STEPS, f"model.architecture={architecture}", *SHAPE, *LOOP, "search.beam=1"
    )


def right_words(trained: Trained, things: int) -> float:
    """Return the percentage of words that are right, at their position, in new sentences of some length."""
    draw = random.Random(f"test {things}")
    pairs = [phrase(draw, things) for _ in range(TESTED)]
    outputs = trained.model([source for source, _ in pairs])
    right = total = 0
    for (_, expected), output in zip(pairs, outputs, strict=True):
        words, wanted = output.text.split(), expected.split()
        right += sum(a == b for a, b in zip(words, wanted, strict=False))
        total += len(wanted)
    return 100 * right / total


def _ends(trained: Trained, text: str) -> bool:
    """Return whether the search itself generated STOP, before the maximum length."""
    task = trained.model.task
    assert isinstance(task, translation.Task)
    (hypotheses,) = task._search([task.tokenizers.source.encode(text)], Search(beam=1))
    return hypotheses[0].ended


def one_vector(show: Demonstration) -> None:
    """R08: an encoder-decoder RNN without attention, context c = h_T, from START to STOP."""
    trained = translator("rnn")
    trained.show(show, "exact")
    output = trained.model(SENTENCE)
    show.table("translation", ("source", "target"), [(SENTENCE, output.text)])
    network = trained.model.task.networks()["model"]
    show.equal("attention layers of the network", sum(isinstance(module, Attention) for module in network.modules()), 0)
    show.equal(SENTENCE, output.text, TRANSLATION)
    show.holds("the output ends on STOP", _ends(trained, SENTENCE))


def bottleneck(show: Demonstration) -> None:
    """R09: quality against the length of the source, with one vector and with attention."""
    curves = {
        "RNN, one vector": [(float(n + 3), right_words(translator("rnn"), n)) for n in LENGTHS],
        "RNN with attention": [(float(n + 3), right_words(translator("rnn+attention"), n)) for n in LENGTHS],
    }
    show.plot("words that are right in new sentences", "words of the source", "%", curves)
    rows = [(int(x), y, other) for (x, y), (_, other) in zip(*curves.values(), strict=True)]
    show.table("the same in numbers", ("words of the source", *curves), rows)
    without, with_attention = ([y for _, y in points] for points in curves.values())
    show.above("one vector, shortest sentences: right words, %", without[0], 90)
    show.below("one vector, longest sentences: right words, %", without[-1], 60)
    show.above("attention, longest sentences: right words, %", with_attention[-1], 90)
    show.below("attention: what the longest sentences lose, %", with_attention[0] - with_attention[-1], 10)
    show.note("What if T = 1000? saccade compare FILE measures it on your own pairs, and copies up to 1,000 symbols.")


def additive_attention(show: Demonstration) -> None:
    """R10: additive attention: e_ti = w . tanh(W s_t-1 + U h_i), softmax, c_t = sum of a_ti h_i; never supervised."""
    trained = translator("rnn+attention")
    trained.show(show, "exact")
    output = trained.model(SENTENCE)
    figure = AttentionFigure.of(output)
    show.figure("attention weights a_ti", "target words (rows) over source words; nobody told it where to look", figure)
    show.equal(SENTENCE, output.text, TRANSLATION)
    weights = output.attention["attention"].weights
    show.above("smallest weight", weights.min().item(), 0.0)
    show.below("largest weight", weights.max().item(), 1.0)
    show.close(
        "sum over the source, smallest and largest",
        [weights.sum(-1).min().item(), weights.sum(-1).max().item()],
        [1.0, 1.0],
        1e-5,
    )
    show.holds("a gradient reaches the scorer", _scorer_gradient(trained) > 0)


def _scorer_gradient(trained: Trained) -> float:
    """Return the norm of the gradient of the loss with respect to the weights of the scorer."""
    task = trained.model.task
    assert isinstance(task, translation.Task)
    network = task.networks()["model"]
    source = torch.tensor([task.tokenizers.source.encode(SENTENCE)])
    target = torch.tensor([task.tokenizers.target.encode(TRANSLATION)])
    network.requires_grad_(True)
    network(source, torch.ones_like(source, dtype=torch.bool), target).log_softmax(-1)[..., 3].sum().backward()
    weight = network.get_submodule("attention.score").weight
    assert weight.grad is not None
    return weight.grad.norm().item()  # type: ignore[no-any-return, operator]


ENGLISH = "The agreement on the European Economic Area was signed in August 1992."
FRENCH = "L'accord sur la zone économique européenne a été signé en août 1992."
NOUNS = {"Area": "zone", "Union": "union", "Policy": "politique", "Bank": "banque", "Region": "région"}
ADJECTIVES = {
    **{"European": "européenne", "Economic": "économique", "African": "africaine", "Asian": "asiatique"},
    **{"Monetary": "monétaire", "Social": "sociale", "Scientific": "scientifique", "American": "américaine"},
}
MONTHS = {"March": "mars", "April": "avril", "May": "mai", "June": "juin", "July": "juillet", "August": "août"}
PAPERS = {"agreement": "accord", "act": "acte", "article": "article", "opinion": "avis"}
ACTS = {"signed": "signé", "adopted": "adopté", "published": "publié", "rejected": "rejeté"}


def write_agreements(folder: Path) -> Written:
    """Write English sentences and their French translations, where two adjectives follow the noun in reverse order."""
    draw, rows = random.Random(2), [(ENGLISH, FRENCH)]
    for _ in range(1500):
        noun, (first, second) = draw.choice(list(NOUNS)), draw.sample(list(ADJECTIVES), 2)
        month, paper, act = (draw.choice(list(words)) for words in (MONTHS, PAPERS, ACTS))
        year = draw.randint(1990, 1999)
        rows.append(
            (
                f"The {paper} on the {first} {second} {noun} was {act} in {month} {year}.",
                f"L'{PAPERS[paper]} sur la {NOUNS[noun]} {ADJECTIVES[second]} {ADJECTIVES[first]} a été {ACTS[act]} en "
                f"{MONTHS[month]} {year}.",
            )
        )
    for name, part in (("agreements.tsv", rows[:1] + rows[41:]), ("valid.tsv", rows[1:41])):
        (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")
    return folder / "agreements.tsv", folder / "valid.tsv"


def alignment(show: Demonstration) -> None:
    """R11: the alignment of English and French: a diagonal, but for the block that runs against it."""
    trained = train_model(write_agreements, "translation", 200, "model.architecture=rnn+attention", *SHAPE, *LOOP)
    trained.show(show, "exact")
    output = trained.model(ENGLISH)
    figure = AttentionFigure.of(output)
    show.figure("alignment", "French words (rows) over English words (columns)", figure)
    show.equal(ENGLISH, output.text, FRENCH)
    attention = figure.attention
    source, target = ([label.strip() for label in axis.labels] for axis in (attention.keys, attention.queries))
    looks = {word: source[int(attention.weights[0, at].argmax())] for at, word in enumerate(target)}
    rows = [(word, looks[word]) for word in target]
    show.table("where each French word looks most", ("French", "English"), rows)
    for french, english in (
        ("zone", "Area"),
        ("économique", "Economic"),
        ("européenne", "European"),
        ("août", "August"),
    ):
        show.equal(f"{french} looks most at", looks.get(french, ""), english)
    block = [source.index(looks[word]) for word in ("zone", "économique", "européenne")]
    show.holds("the block Area, Economic, European runs against the diagonal", block == sorted(block, reverse=True))
    outside = [source.index(looks[word]) for word in ("L'accord", "signé", "août", "1992.")]
    show.holds("and the other words run along it", outside == sorted(outside))


ROWS = (
    Row("R08", "Encoder-decoder RNN without attention: context c = h_T, START and STOP", one_vector, 15.0),
    Row(
        "R09",
        "The bottleneck: quality against the length of the source",
        bottleneck,
        25.0,
        also="saccade compare PAIRS.tsv",
    ),
    Row("R10", "The same with additive attention (Bahdanau)", additive_attention, 15.0),
    Row("R11", "Alignment of English and French: the reversed block", alignment, 15.0, also="saccade demo dates"),
)
