"""Head search: the same weights as the maps, for the words or tokens of one query, in all maps over its axes."""

import pytest
import torch

from saccade.core import AttentionMap, Role, TokenAxis
from saccade.errors import UsageError
from saccade.look.search import is_word, search_heads
from saccade.metrics.alignment import merge_words
from tests.look.attention_maps import attention, axis

TEXT = TokenAxis(Role.TEXT, ("[CLS]", "the", "an", "##imal", "it", ".", "[SEP]"), (0, 1, 2, 2, 3, 4, 5))
SOURCE = axis(4, role=Role.SOURCE)


def layers(count=3, heads=2):
    shape = (heads, len(TEXT), len(TEXT))
    return [AttentionMap(f"encoder.{layer}.self", torch.rand(shape).softmax(-1), TEXT, TEXT) for layer in range(count)]


@pytest.mark.parametrize("words", [False, True])
def test_every_head_has_the_weight_of_its_map(words):
    maps = layers()
    search = search_heads(maps, maps[1], 3, words=words)
    assert [layer.name for layer in search.layers] == [one.name for one in maps]
    for layer, one in zip(search.layers, maps, strict=True):
        whole = (merge_words(one) if words else one).weights
        torch.testing.assert_close(layer.weights, whole[:, 3])


def test_heads_are_ranked_by_a_key_or_by_any_other_word():
    maps = layers()
    search = search_heads(maps, maps[0], 3, words=True)
    assert search.queries[3] == "it" and search.keys[2] == "animal"
    whole = torch.stack([merge_words(one).weights[:, 3] for one in maps])  # layers, heads, keys
    ranked = search.ranked(2, 4)
    assert [entry[3] for entry in ranked] == sorted(whole[:, :, 2].flatten().tolist(), reverse=True)[:4]
    name, head, key, weight = ranked[0]
    assert key == 2 and weight == whole[int(name.split(".")[1]), head, 2]
    assert [search.keys[at] for at in search.words] == ["the", "animal"], "not itself, nothing special, no full stop"
    strongest = search.ranked(None, 1)[0]
    assert strongest[3] == whole[:, :, [1, 2]].max() and strongest[2] in (1, 2)
    assert search.layers[0].top([1]) == [(1, weight) for weight in whole[0, :, 1].tolist()]
    assert search.layers[0].top([]) == []


def test_only_maps_over_the_same_axes_are_searched():
    cross = [attention(torch.rand(2, len(TEXT), 4), f"decoder.{layer}.cross", TEXT, SOURCE) for layer in range(2)]
    maps = [*layers(1), *cross]
    assert [layer.name for layer in search_heads(maps, cross[0], 0, words=False).layers] == [one.name for one in cross]
    assert [layer.name for layer in search_heads(maps, maps[0], 0, words=False).layers] == ["encoder.0.self"]
    assert len(search_heads(maps, cross[0], 4, words=False).words) == 4, "a key of another text is never the query"


def test_a_word_alignment_without_the_end_is_searched_in_the_layers_with_it():
    target, ends = axis(3, role=Role.TARGET), axis(4, role=Role.TARGET)
    cross = attention(torch.rand(2, 4, 4), "decoder.0.cross", ends, SOURCE)
    alignment = attention(torch.rand(1, 3, 3), "alignment", target, axis(3, role=Role.SOURCE))
    search = search_heads([cross], alignment, 2, words=True)
    torch.testing.assert_close(search.layers[0].weights, cross.weights[:, 2, :3])


def test_a_query_or_key_outside_is_refused():
    maps = layers(1)
    with pytest.raises(UsageError, match=r"query must be 0 to 5 in 'encoder.0.self', but is 6"):
        search_heads(maps, maps[0], 6, words=True)
    with pytest.raises(UsageError, match=r"key must be 0 to 6, but is 7"):
        search_heads(maps, maps[0], 6, words=False).ranked(7, 1)


@pytest.mark.parametrize(
    ("label", "word"),
    [("cat", True), ("##s", True), (" the", True), ("7", True), ("日", True)]
    + [(label, False) for label in ("[CLS]", "<s>", "</s>", "<|im_start|>", " [SEP]", ".", "", "--")],
)
def test_special_tokens_and_punctuation_are_no_words(label, word):
    assert is_word(label) is word
