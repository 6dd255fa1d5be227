"""Tokens of English captions as in the Penn Treebank: lower case, contractions apart, punctuation removed.

Equal to the tokenizer of the COCO caption evaluation (Stanford's PTBTokenizer) on ordinary captions.
"""

# Removed after splitting. Brackets stay: their names are lower case by then, and the published list is upper case.
PUNCTUATION = {"''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"}
BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
