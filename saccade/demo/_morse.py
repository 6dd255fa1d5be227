"""Morse code as sound: texts, their dots and dashes, and a tone that is keyed by hand in noise."""

import io
import random
import wave

import numpy as np
from numpy.typing import NDArray

RATE = 4000  # samples per second: enough for tones below 1 kHz
CODE = {
    **{"A": ".-", "B": "-...", "C": "-.-.", "D": "-..", "E": ".", "F": "..-.", "G": "--.", "H": "....", "I": ".."},
    **{"J": ".---", "K": "-.-", "L": ".-..", "M": "--", "N": "-.", "O": "---", "P": ".--.", "Q": "--.-", "R": ".-."},
    **{"S": "...", "T": "-", "U": "..-", "V": "...-", "W": ".--", "X": "-..-", "Y": "-.--", "Z": "--.."},
    **{"0": "-----", "1": ".----", "2": "..---", "3": "...--", "4": "....-", "5": ".....", "6": "-....", "7": "--..."},
    **{"8": "---..", "9": "----."},
}
WORDS = (
    *("CQ", "DE", "QTH", "QSL", "QRZ", "RST", "TNX", "FB", "OM", "HW", "WX", "ANT", "RIG", "PWR", "NAME", "TEST"),
    *("THE", "AND", "SHIP", "PORT", "WIND", "RAIN", "CALM", "NORTH", "SOUTH", "EAST", "WEST", "HELLO", "MORSE"),
    *("RADIO", "WAVE", "TIDE", "STAR", "MOON", "NIGHT", "STORM", "LIGHT", "COAST", "LATE", "SOON", "OVER"),
)
LETTERS = [sign for sign in CODE if sign.isalpha()]
SPEEDS = (16, 30)  # words per minute, of 50 dots each
PITCHES = (400, 900)  # Hz
NOISE = (0.02, 0.5)  # standard deviation, of the amplitude of the tone
JITTER = 0.1  # of the length of every dot, dash and gap: a hand on the key
EDGE = 0.005  # seconds in which the tone rises and falls


def sample_text(rng: random.Random) -> str:
    """Return one or two words, a call sign, a number or letters at random."""
    kind = rng.random()
    if kind < 0.2:
        return rng.choice(WORDS) if rng.random() < 0.5 else f"{rng.choice(WORDS)} {rng.choice(WORDS)}"
    if kind < 0.35:
        letters = "".join(rng.choices(LETTERS, k=rng.randint(1, 2)))
        return f"{letters}{rng.randint(0, 9)}{''.join(rng.choices(LETTERS, k=rng.randint(1, 3)))}"
    if kind < 0.5:
        return str(rng.randint(0, 10 ** rng.randint(1, 4) - 1))
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 6)))


def key_times(text: str, dot: float, rng: random.Random) -> list[tuple[float, float]]:
    """Return start and end of every tone in seconds: a dash is three dots, and so is the gap between two letters."""
    at, tones = 0.0, []

    def hand(units: float) -> float:
        return units * dot * max(0.5, rng.gauss(1.0, JITTER / 2 if units > 1 else JITTER))

    for word in text.split():
        for letter in word:
            for sign in CODE[letter]:
                end = at + hand(3 if sign == "-" else 1)
                tones.append((at, end))
                at = end + hand(1)
            at += hand(2)
        at += hand(4)
    return tones


def render(text: str, rng: random.Random) -> bytes:
    """Return a text as the sound of Morse code, at a random speed, pitch and loudness, in noise: a WAV file."""
    dot = 1.2 / rng.uniform(*SPEEDS)
    tones = key_times(text, dot, rng)
    ahead, behind = rng.uniform(0.05, 0.3), rng.uniform(0.1, 0.4)
    times = np.arange(int((ahead + tones[-1][1] + behind) * RATE)) / RATE - ahead
    loudness = np.zeros(len(times))
    for start, end in tones:
        rise, fall = (times - start) / EDGE, (end - times) / EDGE
        loudness = np.maximum(loudness, np.clip(np.minimum(rise, fall), 0, 1))
    pitch, phase = rng.uniform(*PITCHES), rng.uniform(0, 2 * np.pi)
    noise = np.random.default_rng(rng.getrandbits(64)).standard_normal(len(times))
    sound = loudness * np.sin(2 * np.pi * pitch * times + phase) + rng.uniform(*NOISE) * noise
    return to_wave(sound * rng.uniform(0.1, 0.9) / np.abs(sound).max())


def to_wave(samples: NDArray[np.float64]) -> bytes:
    """Return samples between -1 and 1 as a WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return file.getvalue()
