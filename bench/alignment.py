"""Where adjective and noun change places: the looks of a French translator on held-out pairs, R11 of the lectures.

English puts "red" before "car", French puts "rouge" behind "voiture". Pairs with such an inversion, found with a small
dictionary, are held out, with every pair that has one of their sentences; a translator is trained on the other pairs.
Then the French of each held-out pair is forced, and the looks cross if the French noun, which comes first, has its
largest weight on a later English word than the French adjective behind it. The sentence of the lecture is drawn beside
the held-out ones, whatever it shows.

    python bench/alignment.py [--minutes 10] [--out FOLDER] [--run RUN] [model.architecture=rnn+attention ...]

--run scores a run trained before, on the train.tsv of the same folder.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import saccade
from saccade.look.figure import AttentionFigure

DATA = Path(os.environ.get("SACCADE_DATA", "../shared/data")) / "translation" / "fra-eng_2019.zip"
HELD_OUT = 50
LECTURE = (
    "The agreement on the European Economic Area was signed in August 1992.",
    "L'accord sur la zone économique européenne a été signé en août 1992.",
)
# The beginning of the French word, whatever its gender and number.
ADJECTIVES = {
    "red": "roug", "black": "noir", "white": "blan", "blue": "bleu", "green": "vert", "yellow": "jaune",
    "foreign": "étrang", "japanese": "japonais", "chinese": "chinois", "american": "américain", "french": "français",
    "english": "anglais", "german": "allemand", "italian": "italien", "european": "europé", "hot": "chaud",
    "cold": "froid", "fresh": "frai", "interesting": "intéressant", "important": "important", "difficult": "difficil",
    "strange": "étrange", "rich": "riche", "human": "humain", "natural": "naturel", "empty": "vide", "clean": "propr",
    "dirty": "sale", "dangerous": "dangereu", "modern": "modern", "international": "international", "free": "libre",
    "private": "privé", "economic": "économi", "political": "politi", "public": "publi", "whole": "enti",
}  # fmt: skip
NOUNS = {
    "car": "voiture", "dress": "robe", "wine": "vin", "hat": "chapeau", "cat": "chat", "dog": "chien", "hair": "cheveu",
    "food": "nourriture", "language": "langue", "word": "mot", "man": "homme", "water": "eau", "weather": "temps",
    "book": "livre", "story": "histoire", "problem": "problème", "meeting": "réunion", "world": "monde", "house":
    "maison", "clothes": "vêtement", "tea": "thé", "country": "pays", "noise": "bruit", "accent": "accent", "economy":
    "économie", "chocolate": "chocolat", "coffee": "café", "flower": "fleur", "rose": "rose", "shoe": "chaussure",
    "shirt": "chemise", "tie": "cravate", "paper": "papier", "bag": "sac", "light": "feu", "pen": "stylo", "movie":
    "film", "film": "film", "question": "question", "idea": "idée", "thing": "chose", "person": "personne", "woman":
    "femme", "people": "gens", "company": "compagnie", "being": "être", "nature": "nature", "resource": "ressource",
    "air": "air", "fruit": "fruit", "hand": "main", "bath": "bain", "dish": "plat", "milk": "lait", "day": "journée",
    "week": "semaine", "room": "pièce", "bird": "oiseau", "horse": "cheval", "time": "temps", "stomach": "estomac",
    "newspaper": "journ", "dictionary": "dictionnaire", "culture": "culture", "history": "histoire", "bread": "pain",
    "student": "étudiant", "teacher": "professeur", "wind": "vent", "dream": "rêve", "animal": "animal",
    "relations": "relation", "policy": "politique", "situation": "situation", "opinion": "opinion", "technology":
    "technologie", "art": "art", "music": "musique", "eyes": "yeux", "jacket": "veste", "skirt": "jupe",
}  # fmt: skip


def read_pairs(path):
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("fra-eng/fra.txt").decode().splitlines()
    return [tuple(line.split("\t")[:2]) for line in lines]


def words(text):
    return [word.casefold() for word in re.findall(r"[^\W\d_]+", text)]


def inversion(english, french):
    """Return adjective and noun, then the French noun and adjective, if they change places and each occurs once."""
    source, target = words(english), words(french)
    for adjective, noun in pairwise(source):
        stem, start = ADJECTIVES.get(adjective), NOUNS.get(noun) or NOUNS.get(noun.removesuffix("s"))
        for first, second in pairwise(target):
            if stem and start and first.startswith(start) and second.startswith(stem):
                once = [side.count(word) == 1 for side, word in ((source, adjective), (source, noun))]
                once += [target.count(word) == 1 for word in (first, second)]
                return (adjective, noun, first, second) if all(once) else None
    return None


def split(pairs, folder):
    """Write train.tsv, and return the pairs held out: no sentence of theirs is in the training data."""
    candidates = [pair for pair in pairs if inversion(*pair)]
    random.Random(1).shuffle(candidates)
    held, phrases = [], set()
    for pair in candidates:  # every pair of adjective and noun once
        phrase = inversion(*pair)[:2]
        if phrase not in phrases and len(held) < HELD_OUT:
            phrases.add(phrase)
            held.append(pair)
    sentences = {sentence for pair in held for sentence in pair}
    kept = [pair for pair in pairs if not sentences.intersection(pair)]
    (folder / "train.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in kept), encoding="utf-8")
    return held, len(candidates), len(kept)


def position(labels, word):
    """Return the index of the label that has the word; punctuation and elided articles may be attached to it."""
    return next(at for at, label in enumerate(labels) if word in words(label))


def looks(model, english, french):
    """Return what the French noun and the French adjective look at most, and whether these looks cross."""
    adjective, noun, first, second = inversion(english, french)
    figure = AttentionFigure.of(model(english, target=french))
    source, target = figure.attention.keys.labels, figure.attention.queries.labels
    at = [int(figure.attention.weights[0, position(target, word)].argmax()) for word in (first, second)]
    exact = at == [position(source, noun), position(source, adjective)]
    return {
        "noun": [first, source[at[0]]],
        "adjective": [second, source[at[1]]],
        "cross": at[0] > at[1],
        "exact": exact,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "overrides", nargs="*", help="settings of the training, by default model.architecture=rnn+attention"
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--out", type=Path, default=Path("alignment"), help="folder of the data, the run and the figures"
    )
    parser.add_argument("--run", help="a run trained on the train.tsv of this folder")
    options = parser.parse_args()
    if not DATA.is_file():
        raise SystemExit(f"no pairs in {DATA}; set SACCADE_DATA to a folder that holds translation/fra-eng_2019.zip")
    options.out.mkdir(parents=True, exist_ok=True)
    held, candidates, kept = split(read_pairs(DATA), options.out)
    print(f"{candidates:,} pairs with an inversion, {len(held)} held out; {kept:,} pairs to train on")
    run = options.run
    if run is None:
        overrides = options.overrides or ["model.architecture=rnn+attention"]
        arguments = [
            "train",
            str(options.out / "train.tsv"),
            "--task",
            "translation",
            "--minutes",
            str(options.minutes),
        ]
        run = options.out / "french"
        command = [sys.executable, "-m", "saccade", *arguments, "--runs", str(options.out), "--name", run.name]
        subprocess.run([*command, *overrides], check=True)  # its progress is shown as usual
    model = saccade.load(str(run), device="cpu")
    rows = []
    for number, (english, french) in enumerate(held):
        row = looks(model, english, french)
        rows.append(row)
        mark = "exact  " if row["exact"] else "crosses" if row["cross"] else "no     "
        print(f"{mark} {row['noun'][0]} -> {row['noun'][1]}, {row['adjective'][0]} -> {row['adjective'][1]}: {french}")
        if number < 3:
            AttentionFigure.of(model(english, target=french)).write(options.out / f"held-out-{number + 1}.svg")
    AttentionFigure.of(model(LECTURE[0], target=LECTURE[1])).write(options.out / "lecture.svg")
    print(f"the sentence of the lecture, its French given: {options.out / 'lecture.svg'}")
    crossing, exact = (sum(row[key] for row in rows) for key in ("cross", "exact"))
    print(json.dumps({"name": "inversions", "pairs": len(rows), "cross": crossing, "exact": exact}))


if __name__ == "__main__":
    main()
