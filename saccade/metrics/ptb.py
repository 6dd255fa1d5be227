"""Tokens of English captions as in the Penn Treebank: lower case, contractions apart, punctuation removed.

Equal to the tokenizer of the COCO caption evaluation (Stanford's PTBTokenizer) on ordinary captions.

M. P. Marcus et al., Building a large annotated corpus of English: the Penn Treebank, 1993.
"""

import re

# Removed after splitting. Brackets stay: the published list has their names in upper case, and they are lower by then.
PUNCTUATION = {'"', "'", "''", "``", "`", ".", "?", "!", ",", ":", "-", ";"}
NAMES = {
    **{":)": ":-rrb-", ":-)": ":--rrb-", ";)": ";-rrb-", ";-)": ";--rrb-", ":(": ":-lrb-", ":-(": ":--lrb-"},
    **{"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"},
    **{"£": "#", "€": "$", "¼": "1/4", "½": "1/2", "¾": "3/4"},
}
PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "--", "—": "--", "…": "...", "\u00ad": None})

# Abbreviations keep their period; some only with a capital, or before a number.
TITLES = "adm|brig|capt|cmdr|col|comdr|cpl|drs?|esq|gen|govs?|hon|insp|jr|lieut|lt|maj|messrs|mrs?|ms|pres|profs?|pvt"
TITLES += "|reps?|rev|sens?|sgt|sr|ste?|supt"
DATES = "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tues?|wed|thu|thurs|fri"
PLACES = "ala|ariz|ave|bldg|blvd|calif|colo|conn|ct|dak|fla|ft|ga|ind|kans?|ky|md|mich|minn|mo|mont|mt|neb|nev|okla"
PLACES += "|penn|rd|rt|sq|tenn|univ|va|vt|wisc?|wyo"
OTHERS = "al|assn|bros|cf|cie|corp|cos?|dept|elec|est|etc|ext|inc|intl|jos|ltd|mfg|natl|ph|plc|pty|seq|tel|vs"
CAPITALIZED = "Ark|Az|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash"
CAPITALIZED += "|" + CAPITALIZED.upper()
BEFORE_NUMBER = "art|ca|figs?|nos?|op|pp|prop"

LETTER = r"[^\W\d_²³¹¼-¾⁰-₉]"
WORD = rf"(?:{LETTER}|\d)"
TOKEN = re.compile(
    rf"""
    (?:https?://|www\.)[^\s"<>()]*[^\s"<>().,!?;:']      # address
  | [\w.+-]+@\w+(?:[.-]\w+)+                             # e-mail
  | [\w-]+(?:\.[\w-]+)*\.(?:com|net|org|edu|gov|jpg)\b   # host or file
  | <[a-z/][^<>\s]*>                                     # tag
  | [#@][a-z_]\w*
  | [:;]-?\)|:-?\(                                         # smiley
  | (?:{TITLES}|{DATES}|{PLACES}|{OTHERS}|(?-i:{CAPITALIZED}))\.(?!\w)
  | (?:{BEFORE_NUMBER})\.(?=\s*\d)
  | ph\.d\.? | (?:{LETTER}\.)+{LETTER}(?![\w.]) | (?:{LETTER}\.)+   # initials
  | 'n' | '(?:\d0s|\d\d|n|em|till?|cause|tis|twas)(?!\w)  # words that begin with an apostrophe
  | o'clock | ma'am | ol'(?!\w) | y'(?=all\b) | d'{LETTER}{{2,}}
  | (?-i:[A-HJ-XZn])'(?!(?:ll|re|ve)\b){LETTER}{{2,}}      # O'Neill
  | can(?=not\b) | (?:gon|wan)(?=na\b) | got(?=ta\b) | (?:gim|lem)(?=me\b)
  | {LETTER}+?(?=n't(?!\w)) | n't(?!\w)                  # do | n't
  | '(?:s|m|d|re|ve|ll)(?!\w)                            # it | 's
  | \d+(?:[.,:]\d+)+(?:-{WORD}+)* | \.\d+
  | (?-i:[A-Z]+&[A-Z]+) | {WORD}+(?:[/+-]{WORD}+)*\+*
  | \.{{2,}} | -{{2,}} | [!?]+ | \*+ | '' | ``
  | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tokenize(caption: str) -> list[str]:
    """Split a caption into tokens."""
    text = caption.translate(PLAIN).replace("&amp;", "&")
    tokens = (NAMES.get(token, token.lower()) for token in TOKEN.findall(text))
    return [token for token in tokens if token not in PUNCTUATION and token.strip(".") and token.strip("-")]
