"""pix2tex: numbers, pixels and texts of the published packages; batches, caches, attention, refusals by name."""

import json
import re

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

import saccade
from saccade.cli import main
from saccade.core import GridAxis, TokenAxis
from saccade.data.images.formulas import crop_formula, read_formula, read_formula_sizes
from saccade.data.text.latex import compact_latex
from saccade.decode.search import Search
from saccade.errors import DataError, ModelFileError, UsageError
from saccade.models.vision.pix2tex import Pix2TexConfig
from saccade.nn.cache import KVCache
from saccade.pretrained.opening import describe, open_pretrained
from saccade.tasks import captioning, reading
from tests.pretrained.pix2tex_reference import CONFIG, IDS, LATEX, SIZES, digest, expected, pictures, pixels, tensors

pytest.importorskip("PIL", reason="decodes pictures; installed with the [images] extra")

EXPECTED = expected()
SPECIAL = ("[PAD]", "[BOS]", "[EOS]")
TOKENS = (*SPECIAL, "Ġ", "\\", "{", "}", "=", "+", "^", "_", *"abcdefghijxyz0123456789", "ra", "Ġx")


def tokenizer():
    """Return a tokenizer.json as pix2tex has it: without a type of the model and without a decoder."""
    added = [{"id": number, "special": True, "content": token} for number, token in enumerate(SPECIAL)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    model = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    vocabulary = {token: number for number, token in enumerate(token for token in TOKENS if token != "ra")}
    return {
        **{"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None},
        "added_tokens": [{**token, **flags} for token in added],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "decoder": None,
        "model": {**model, "fuse_unk": False, "vocab": vocabulary, "merges": ["Ġ x"]},
    }


def write(folder, config=None, weights=None, words=None):
    """Write the tiny model to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights or tensors(EXPECTED["shapes"]), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **(config or {})}))
    (folder / "tokenizer.json").write_text(json.dumps(words or tokenizer()))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return saccade.load(str(folder), device="cpu")


def colours(grey):
    return torch.from_numpy(grey)[None].expand(3, -1, -1)


def some_formula(height=40, width=90):
    """Return a picture (H, W) of a few strokes."""
    picture = np.full((height, width), 255, dtype=np.uint8)
    picture[5:30, 8:11], picture[18:20, 20:60], picture[8:33, 70:74] = 0, 30, 60
    return picture


def test_vectors_and_logits_are_those_of_the_published_network(folder):
    pretrained = open_pretrained(str(folder))
    assert pretrained.task == "reading" and describe(str(folder))["unused"] == []
    for height, width in SIZES:
        picture = colours(pixels(height, width))[None]
        keep = torch.ones(1, 1 + height * width // 256, dtype=torch.bool)
        with torch.no_grad():
            memory = pretrained.network.encode(picture, keep)
            logits = pretrained.network(picture, keep, torch.tensor(IDS))
        published = EXPECTED["outputs"][f"{height} x {width}"]
        encoded, written = memory.values[0, :, :3].flatten(), logits[0, :, :12].flatten()
        torch.testing.assert_close(encoded, torch.tensor(published["encoder"]), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(written, torch.tensor(published["logits"]), atol=1e-4, rtol=1e-4)
        assert encoded.std() > 0.1 and written.std() > 0.1


def test_pictures_are_read_as_published():
    read = [digest(read_formula(np.repeat(grey[..., None], 3, axis=2), 192, 672)) for grey in pictures()]
    assert read == EXPECTED["pictures"]


def test_texts_are_compacted_as_published():
    assert [compact_latex(text) for text in LATEX] == EXPECTED["texts"]


def test_a_formula_is_cropped_made_dark_on_white_and_padded():
    bright = np.full((50, 70), 20, dtype=np.uint8)
    bright[10:20, 30:65] = 220
    grey = crop_formula(bright)
    assert grey.shape == (32, 64) and not grey[:10, :35].any()
    assert (grey[10:] == 255).all() and (grey[:, 35:] == 255).all()


def test_the_other_sizes_of_a_formula_stay_within_the_limits():
    picture = np.repeat(next(pictures())[..., None], 3, axis=2)
    sizes = read_formula_sizes(picture, 192, 672)
    assert np.array_equal(sizes[0], read_formula(picture, 192, 672)) and len(sizes) > 3
    large = np.full((1200, 2400, 3), 255, dtype=np.uint8)
    large[100:1100, 100:2300] = 0
    large[120:1080, 120:2280] = 255
    shapes = [image.shape for image in read_formula_sizes(large, 192, 672)]
    assert max(height for height, _ in shapes) == 192 and max(width for _, width in shapes) <= 672
    assert len(shapes) == 5  # it cannot be larger


def test_a_picture_that_shows_no_formula_is_refused():
    with pytest.raises(
        UsageError, match=re.escape("image must show a formula, but all its pixels have one grey level (7)")
    ):
        crop_formula(np.full((20, 20), 7, dtype=np.uint8))
    high = np.full((20_000, 20, 3), 255, dtype=np.uint8)
    high[::5] = 0
    rule = "the formula in image must keep 1 x 1 pixels when it is reduced to 192 x 672, but is 20000 x 32; cut it"
    with pytest.raises(UsageError, match=rule):
        read_formula(high, 192, 672)


def test_a_picture_in_a_batch_is_read_as_alone(model):
    images = [colours(pixels(height, width)) for height, width in ((32, 96), (64, 32), (32, 32))]
    network, ids = model.task.model, torch.tensor(IDS)
    with torch.no_grad():
        together = network(*model.task.stack(images), ids.expand(3, -1))
        alone = torch.cat([network(*model.task.stack([image]), ids) for image in images])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    inputs = [some_formula(40, 90), some_formula(60, 80)]
    options = {"beam": 2, "resize": False}
    assert [one.text for one in model(inputs, **options)] == [model(one, **options).text for one in inputs]


def test_cached_decoding_gives_the_same_logits(model):
    network, ids, cache = model.task.model, torch.tensor(IDS), KVCache(8)
    with torch.no_grad():
        memory = network.encode(*model.task.stack([colours(some_formula(64, 96))]))
        whole = network.decode(ids, memory)
        steps = torch.cat([network.decode(ids[:, at : at + 1], memory, cache=cache) for at in range(8)], dim=1)
    torch.testing.assert_close(steps, whole, atol=1e-5, rtol=1e-5)


def test_attention_is_over_the_grid_of_the_picture(model):
    out = model(some_formula(), resize=False)
    names = ["encoder.encoder.0.self", *(f"decoder.{layer}.{kind}" for layer in range(2) for kind in ("self", "cross"))]
    assert list(out.attention) == names
    cross = out.attention["decoder.1.cross"]
    assert isinstance(cross.keys, GridAxis) and isinstance(cross.queries, TokenAxis)
    assert (cross.keys.rows, cross.keys.columns, cross.keys.extra) == (2, 6, ("class",))
    assert cross.keys.image is not None and cross.keys.image.shape == (3, 32, 96)
    weights = cross.weights
    assert weights.shape == (2, len(cross.queries), 13)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert isinstance(out.attention["encoder.encoder.0.self"].queries, GridAxis)
    effect = model.explain(out).ablate("decoder.1.cross", head=0)
    assert effect is not None


def test_a_command_is_one_word_of_the_figures(model):
    target = model.task.target
    ids = target.tokenizer.encode("x = \\abc { 1")
    assert target.tokenizer.pieces(ids) == ["x", " ", "=", " ", "\\", "a", "b", "c", " ", "{", " ", "1"]
    assert target.output_axis(ids).words == (1, 2, 2, 3, 3, 3, 3, 3, 4, 4, 5, 5, 6)
    assert target.input_axis(ids).words == (1, 2, 3, 3, 4, 4, 4, 4, 4, 5, 5, 6, 6)


def test_the_command_describes_encoder_and_decoder(folder):
    shown = CliRunner().invoke(main, ["models", "show", str(folder)])
    assert shown.exit_code == 0, shown.output
    assert "vocabulary_size 35\n" in shown.output and "family          pix2tex\n" in shown.output
    assert "shape encoder   dim=32 depth=1 heads=2 hidden=128\n" in shown.output
    assert "shape decoder   dim=32 depth=2 heads=2 hidden=128\n" in shown.output


def test_a_stream_gives_the_tokens_of_the_text(model):
    options = {"beam": 1, "resize": False}
    streamed = "".join(str(token) for token in model.stream(some_formula(), **options))
    assert compact_latex(streamed) == model(some_formula(), **options).text


def test_the_most_probable_size_is_kept(model):
    task, picture = model.task, colours(some_formula(200, 300))
    images = task.format.sizes(picture)
    kept = task.read_input(picture, reading.FormulaOptions())
    with torch.no_grad():
        scores = [task.search([1], lambda _, one=one: task.stack([one]), Search(beam=1))[0][0].score for one in images]
    assert len(images) > 1 and torch.equal(kept, images[scores.index(max(scores))])
    assert torch.equal(task.read_input(picture, reading.FormulaOptions(resize=False)), task.format.read(picture))


def test_texts_never_exceed_the_learned_positions(model):
    assert model.task.max_length == 7
    assert model(some_formula(), target="xxxxxxx").scores["perplexity"] > 1
    for name in ("target", "prefix"):
        with pytest.raises(UsageError, match=f"{name} must have at most 7 tokens, but has 8; shorten it"):
            model(some_formula(), **{name: "abcdefgh"})
    for length in range(8):
        prefix = "abcdefg"[:length]
        assert model(some_formula(), prefix=prefix, resize=False).text.startswith(prefix)


def test_evaluation_compares_with_given_texts(model, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(some_formula()).save(tmp_path / "a.png")
    text = model(some_formula()).text
    (tmp_path / "labels.csv").write_text(f'image,text\na.png,"{text or "x"}"\n')
    values = model.evaluate(tmp_path / "labels.csv").values
    assert values["exact"] == (100.0 if text else 0.0) and values.keys() == {"exact", "cer", "wer", "images"}
    (tmp_path / "labels.csv").write_text("image,text\na.png,abcdefgh\n")
    with pytest.raises(DataError, match=r"labels.csv:2.*: a text must have at most 7 tokens, but has 8; remove it"):
        model.evaluate(tmp_path / "labels.csv")


def test_it_is_not_a_base_for_training(folder):
    pretrained = open_pretrained(str(folder))
    with pytest.raises(UsageError, match="base must be a model that reads images of one size, but tiny is a pix2tex"):
        captioning.Task.choose_format(captioning.CaptionConfig(base="tiny"), None, pretrained)
    with pytest.raises(UsageError, match="a pix2tex cannot run as the task image_classification; leave out --task"):
        saccade.load(str(folder), task="image_classification")
    rule = "base must be a run of the task reading, but tiny is a pix2tex; train such a run first, or leave out --from"
    with pytest.raises(UsageError, match=rule):
        reading.Task.prepare(reading.ReadingConfig(base="tiny"), folder, folder, base=pretrained)
    with pytest.raises(UsageError, match="this task has no exchange format"):
        saccade.load(str(folder)).task.to_pretrained()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"channels": 3}, "channels"),
        ({"patch_size": 32}, "patch_size"),
        ({"encoder_structure": "vit"}, "encoder_structure"),
        ({"min_width": 96}, "min_width"),
        ({"backbone_layers": [1, 2]}, r"backbone_layers must be 3 numbers of blocks, but is \[1, 2\]"),
        ({"backbone_layers": [1, 0, 1]}, r"blocks must be at least 1 in each stage, but is \[1, 0, 1\]"),
        ({"max_height": 80}, "max_height must be a multiple of 32, but is 80"),
        ({"heads": 3}, "dim must be a multiple of heads, but 32 is not a multiple of 3"),
        ({"decoder_args": {"attn_on_attn": False}}, "attn_on_attn is False"),
        ({"decoder_args": {}}, "attn_on_attn is missing"),
        ({"num_tokens": 20}, "the tokenizer must have at most 20 tokens"),
        ({"eos_token": 39}, "eos_token must be an id of tokenizer.json, which has 35 tokens, but is 39"),
        ({"max_width": 128}, "'encoder.position.table' must have the shape"),
        ({"num_layers": 3}, "the tensor 'decoder.net.attn_layers.layers.6.1.to_q.weight' is missing"),
    ],
)
def test_a_config_that_would_change_the_numbers_is_refused(changes, rule, tmp_path):
    with pytest.raises(ModelFileError, match=rule):
        open_pretrained(str(write(tmp_path / "model", config=changes)))


def test_other_options_of_the_decoder_are_refused_by_name(tmp_path):
    flags = {"attn_on_attn": True, "cross_attend": True, "ff_glu": True, "rel_pos_bias": False, "use_scalenorm": False}
    assert open_pretrained(str(write(tmp_path / "a", {"decoder_args": flags}))).network is not None
    with pytest.raises(ModelFileError, match="rotary_pos_emb is True; this variant of pix2tex is not supported"):
        open_pretrained(str(write(tmp_path / "b", {"decoder_args": {**flags, "rotary_pos_emb": True}})))


def test_another_tokenizer_or_none_is_refused(tmp_path):
    other = {**tokenizer(), "pre_tokenizer": {"type": "Whitespace"}}
    with pytest.raises(ModelFileError, match=r"pre_tokenizer must be ByteLevel, but is {'type': 'Whitespace'}"):
        open_pretrained(str(write(tmp_path / "a", words=other)))
    (tmp_path / "a" / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match=r"must hold tokenizer.json, but does not; download the complete model"):
        open_pretrained(str(tmp_path / "a"))


def test_wrong_shapes_are_refused(tmp_path):
    weights = tensors({**EXPECTED["shapes"], "encoder.patch_embed.proj.weight": [32, 512, 1, 1]})
    with pytest.raises(ModelFileError, match=r"'encoder.project.weight' must have the shape"):
        open_pretrained(str(write(tmp_path / "model", weights=weights)))


def test_a_config_must_fit_together(folder):
    shapes = open_pretrained(str(folder)).config
    with pytest.raises(ValueError, match="height and width must be multiples of a cell of 16 pixels, but are 40 x 96"):
        Pix2TexConfig(shapes.encoder, shapes.decoder, height=40, width=96)
