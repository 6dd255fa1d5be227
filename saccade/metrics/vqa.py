"""Metrics of visual question answering: accuracy as the evaluation of the VQA authors computes it, and a blind prior.

S. Antol et al., VQA: visual question answering, ICCV 2015.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from saccade import __version__
from saccade.metrics.generation import Score

AGREEING = 3  # people who must give an answer for it to be entirely right
START_WORDS = 2  # of a question; they often decide the kind of answer

ARTICLES = {"a", "an", "the"}
NUMBERS = {
    **{"none": "0", "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6"},
    **{"seven": "7", "eight": "8", "nine": "9", "ten": "10"},
}
# Each is restored where one of its apostrophes is missing. Forms that are words of their own without it ("we're",
# "he'll", "its") are not in the published list.
CONTRACTIONS = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't must've needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
RESTORED = {
    word[: mark.start()] + word[mark.end() :]: word for word in CONTRACTIONS.split() for mark in re.finditer("'", word)
} | {"somebody'd": "somebodyd"}  # this way round in the published list
PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
PERIOD = re.compile(r"\.(?!\d)")
NUMBER_COMMA = re.compile(r"\d,\d")


def normalize(answer: str) -> str:
    """Normalize an answer: lower case, no punctuation or articles, digits for numbers, apostrophes of contractions."""
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    grouped = NUMBER_COMMA.search(text) is not None
    cleaned = text
    for mark in PUNCTUATION:
        beside_space = mark + " " in text or " " + mark in text
        cleaned = cleaned.replace(mark, "" if beside_space or grouped else " ")
    words = [NUMBERS.get(word, word) for word in PERIOD.sub("", cleaned).lower().split()]
    return " ".join(RESTORED.get(word, word) for word in words if word not in ARTICLES)


def vqa_accuracy(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """VQA accuracy, 0 to 100: an answer counts min(people who gave it / 3, 1), mean over leaving each person out.

    Where a question has fewer than four answers, too few agree to reach 1: an answer is right that equals any of them.
    As published, answers are compared without normalization where all people agree to the letter.
    """
    if len(predictions) != len(references):
        lengths = f"{len(predictions)} and {len(references)}"
        raise ValueError(f"predictions and references must have the same length, but have {lengths}")
    if not references:
        raise ValueError("references must hold at least one question, but are empty")
    empty = next((row for row, answers in enumerate(references) if not answers), None)
    if empty is not None:
        raise ValueError(f"each question must have an answer, but row {empty} has none")
    total = sum(_agreement(predicted, answers) for predicted, answers in zip(predictions, references, strict=True))
    counts = {len(answers) for answers in references}
    people = counts.pop() if len(counts) == 1 else "var"
    return Score(100 * total / len(references), f"vqa|answers:{people}|version:saccade-{__version__}")


def question_prior(
    questions: Sequence[str], train_questions: Sequence[str], train_answers: Sequence[Sequence[str]]
) -> list[str]:
    """Answer questions without their pictures: the most frequent training answer of the same question.

    A question that was not asked in training gets that of the questions with the same first two words, else the most
    frequent answer of all. Its accuracy is what the language of the questions alone gives away.
    """
    if not train_questions:
        raise ValueError("train_questions must hold at least one question, but are empty")
    by_question: defaultdict[str, Counter[str]] = defaultdict(Counter)
    by_start: defaultdict[str, Counter[str]] = defaultdict(Counter)
    overall: Counter[str] = Counter()
    for question, answers in zip(train_questions, train_answers, strict=True):
        text = normalize(question)
        for counter in (by_question[text], by_start[_start(text)], overall):
            counter.update(answers)
    return [
        (by_question.get(text) or by_start.get(_start(text)) or overall).most_common(1)[0][0]
        for text in map(normalize, questions)
    ]


def _start(question: str) -> str:
    return " ".join(question.split()[:START_WORDS])


def _agreement(predicted: str, answers: Sequence[str]) -> float:
    """Return how many people agree with an answer, 0 to 1."""
    plain = [answer.replace("\n", " ").replace("\t", " ").strip() for answer in (predicted, *answers)]
    if len(answers) <= AGREEING:
        return float(normalize(predicted) in map(normalize, answers))
    given, *others = plain if len(set(plain[1:])) == 1 else map(normalize, plain)
    equal = others.count(given)
    # Leaving out one who agrees, equal - 1 remain; leaving out one who does not, all of them.
    left_out = equal * min((equal - 1) / AGREEING, 1.0) + (len(others) - equal) * min(equal / AGREEING, 1.0)
    return left_out / len(others)
