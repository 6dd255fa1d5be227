"""Pretrained models as tasks and as bases for fine-tuning: their weights are used, and only the chosen ones trained."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

import saccade
from saccade import api
from saccade.config import override
from saccade.core import Pretrained
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.opening import open_pretrained
from saccade.runs import checkpoint
from saccade.tasks import language_model, load_task, masked_language_model, sentence_vectors, translation
from saccade.tasks.text_classification import Task
from saccade.training.loop import Trainer

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

TEXTS = ["the cat sat on the red mat.", "a dog", "the blue dog ran, did he?"]
LOOP = ["train.device=cpu", "train.steps=6", "train.evaluate_every=3", "max_length=32", "batch_tokens=200"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.tsv"
    animals = ["cat" if number % 3 else "dog" for number in range(60)]
    lines = [f"the {animal} sat {number}\t{animal}\n" for number, animal in enumerate(animals)]
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


@pytest.fixture
def gpt2_folder(tmp_path):
    folder = tmp_path / "gpt2"
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=None, eos_token_id=None
    )
    transformers.GPT2LMHeadModel(config).eval().save_pretrained(folder)
    train_tokenizer("bpe", TEXTS, 300).save(folder / "tokenizer.json")
    return folder


@pytest.fixture
def bare_folder(bert_folder, tmp_path):
    """The encoder of the tiny BERT without its heads."""
    folder = tmp_path / "bare"
    transformers.BertModel.from_pretrained(bert_folder, add_pooling_layer=False).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(bert_folder / name, folder)
    return folder


def theirs(folder, text, second=None):
    """Return the last hidden states (T, D) and the inputs of one text or two, by transformers."""
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    inputs = tokenizer(text, second, return_tensors="pt")
    with torch.no_grad():
        return transformers.BertModel.from_pretrained(folder).eval()(**inputs).last_hidden_state[0], inputs


def weights(run, step):
    return checkpoint.read(checkpoint.at(run.path / "checkpoints", step), ("model",)).parts["model"]


def train(rows, base, *overrides, task="text_classification", name="tuned"):
    return saccade.train(
        rows, task=task, name=name, root=rows.parent / "runs", overrides=[*LOOP, f"base={base}", *overrides]
    )


def test_a_bert_fills_masks_as_in_transformers(bert_folder):
    model = saccade.load(str(bert_folder), device="cpu")
    task = model.task
    assert isinstance(task, masked_language_model.Task)
    prediction = model("the [MASK] sat.", second="a dog ran.", n_best=100)
    _, inputs = theirs(bert_folder, "the [MASK] sat.", "a dog ran.")
    with torch.no_grad():
        expected = transformers.BertForPreTraining.from_pretrained(bert_folder).eval()(**inputs)
    position = inputs.input_ids[0].tolist().index(task.template.mask_id)
    assert task.model.bert.embedding.num_embeddings > task.tokenizer.size  # rows that no token has
    probabilities = expected.prediction_logits[0, position, : task.tokenizer.size].softmax(-1)
    for token_id, probability in enumerate(probabilities.tolist()):
        assert prediction.scores[task.tokenizer.token(token_id)] == pytest.approx(probability, abs=1e-5)
    follows = float(expected.seq_relationship_logits.softmax(-1)[0, 0])
    assert prediction.scores["follows"] == pytest.approx(follows, abs=1e-5)


def test_an_encoder_without_heads_gives_the_vectors_of_transformers(bare_folder):
    model = saccade.load(str(bare_folder), device="cpu")
    assert isinstance(model.task, sentence_vectors.Task)
    for text in TEXTS:
        expected = theirs(bare_folder, text)[0].mean(0)
        assert model(text).output.values.tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_gpt2_has_the_logits_of_transformers(gpt2_folder):
    task = saccade.load(str(gpt2_folder), device="cpu").task
    assert isinstance(task, language_model.Task)
    ids = torch.tensor([task.tokenizer.encode("the cat")])
    with torch.no_grad():
        expected = transformers.GPT2LMHeadModel.from_pretrained(gpt2_folder).eval()(ids).logits
        torch.testing.assert_close(task.model(ids), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "fixture", "family", "name"),
    [
        (language_model, "bert_folder", "bert", "language_model"),
        (translation, "bert_folder", "bert", "translation"),
        (masked_language_model, "gpt2_folder", "gpt2", "masked_language_model"),
        (sentence_vectors, "gpt2_folder", "gpt2", "sentence_vectors"),
    ],
)
def test_a_network_that_a_task_cannot_run_is_refused(kind, fixture, family, name, request):
    pretrained = open_pretrained(str(request.getfixturevalue(fixture)))
    with pytest.raises(UsageError, match=rf"^a {family} cannot run as the task {name}; leave out --task, or use "):
        kind.Task.from_pretrained(pretrained)


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_a_base_is_loaded_before_anything_is_trained(rows, bert_folder, tmp_path, tune):
    kind = load_task("text_classification")
    config = override(kind.Config(), ["max_length=32", f"base={bert_folder}", f"tune={tune}"])
    assets = tmp_path / "assets"
    assets.mkdir()
    base = open_pretrained(str(bert_folder))
    assert isinstance(base, Pretrained)
    notes = kind.prepare(config, rows, assets, base=base)
    assert any(note.startswith(f"base: {bert_folder}, bert, 0.0 M parameters") for note in notes)
    task = kind.open(config, assets)
    task.model.eval()
    encoded = [task.encode(text) for text in TEXTS] + [task.encode(TEXTS[0], TEXTS[1])]
    pairs = [(text, None) for text in TEXTS] + [(TEXTS[0], TEXTS[1])]
    for row, vectors in task.features(encoded):
        expected, inputs = theirs(bert_folder, *pairs[row])
        assert list(encoded[row].ids) == inputs.input_ids[0].tolist()
        torch.testing.assert_close(vectors, expected, atol=1e-4, rtol=1e-4)


def test_a_base_brings_its_heads_to_a_masked_language_model(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    book = tmp_path / "book.txt"
    book.write_text("".join(f"the cat sat {number}. The dog ran {number}.\n" for number in range(40)))
    overrides = ["max_length=32", "train.optim.lr=0", "batch_tokens=200"]
    run = saccade.train(
        book,
        task="masked_language_model",
        root=tmp_path / "runs",
        base=str(bert_folder),
        steps=1,
        device="cpu",
        overrides=overrides,
    )
    models = [saccade.load(ref, device="cpu") for ref in (run, str(bert_folder))]
    scores = [model("the [MASK] sat.", second="a dog.", n_best=9).scores for model in models]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_only_the_head_is_trained_where_the_encoder_is_frozen(rows, bert_folder):
    run = train(rows, bert_folder, "tune=head")
    base, after = load_file(run.path / "assets" / "base.safetensors"), weights(run, 6)
    encoder = [name for name in after if name.startswith("bert.")]
    assert {name for name in base if name.startswith("bert.") and "pooler" not in name} == set(encoder)
    assert all(torch.equal(after[name], base[name]) for name in encoder)
    assert after["head.weight"].abs().sum() > 0


def test_only_the_adapters_and_the_head_are_trained_with_lora(rows, bert_folder):
    run = train(rows, bert_folder, "tune=lora", "rank=3")
    base, after = load_file(run.path / "assets" / "base.safetensors"), weights(run, 6)
    adapters = [name for name in after if name.endswith((".lora_a", ".lora_b"))]
    assert {after[name].shape[0] for name in adapters if name.endswith("lora_a")} == {3}
    for name, value in after.items():
        if name in adapters:
            assert value.abs().sum() > 0, name
        elif not name.startswith("head."):
            assert torch.equal(value, base[name]), name
    assert after["head.weight"].abs().sum() > 0


def test_all_weights_are_trained_by_default(rows, bert_folder):
    run = train(rows, bert_folder)
    base, after = load_file(run.path / "assets" / "base.safetensors"), weights(run, 6)
    loaded = [name for name in after if name in base]
    assert len(loaded) == len(after) - 2  # all but the head
    assert [name for name in loaded if torch.equal(after[name], base[name])] == []


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_an_interrupted_run_with_a_base_resumes_exactly(rows, bert_folder, monkeypatch, tune):
    overrides = ["train.save_every=2", f"tune={tune}"]
    complete = train(rows, bert_folder, *overrides, name="complete")
    step = Trainer._train_step

    def interrupt(self):
        if self.step == 5:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(rows, bert_folder, *overrides, name="interrupted")
    interrupted = rows.parent / "runs" / "interrupted"
    assert checkpoint.steps(interrupted / "checkpoints")[-1] == 4
    saccade.resume(interrupted)
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [checkpoint.at(folder / "checkpoints", 6) / name for folder in (complete.path, interrupted)]
        assert files[0].read_bytes() == files[1].read_bytes(), name


def test_a_run_does_not_need_its_base_any_more(rows, bert_folder, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(bert_folder, moved)
    run = train(rows, moved)
    before = saccade.load(run, device="cpu")(TEXTS[0])
    shutil.rmtree(moved)
    assert saccade.load(run, device="cpu")(TEXTS[0]).scores == before.scores


@pytest.mark.parametrize("tune", ["all", "lora"])
def test_a_run_is_a_base_with_its_adapters_merged(rows, bert_folder, tune):
    first = train(rows, bert_folder, f"tune={tune}", name="first")
    task = saccade.load(first, device="cpu").task
    second = train(rows, first.path, "train.steps=1", "train.optim.lr=0", name="second")
    again = saccade.load(second, device="cpu").task
    encoded = [task.encode(text) for text in TEXTS]
    vectors, expected = (dict(each.features(encoded)) for each in (again, task))
    for row in range(len(TEXTS)):
        torch.testing.assert_close(vectors[row], expected[row], atol=1e-5, rtol=1e-5)


def test_an_unsuitable_base_is_refused(rows, bert_folder, gpt2_folder, tmp_path):
    message = rf"^base must be an encoder such as BERT, but {gpt2_folder} is a gpt2$"
    with pytest.raises(UsageError, match=message):
        train(rows, gpt2_folder)
    with pytest.raises(UsageError, match=r"^no model 'minilmm'; did you mean 'minilm'\?; name an existing folder"):
        train(rows, "minilmm")
    large = tmp_path / "large"
    shutil.copytree(bert_folder, large)
    count = len((large / "vocab.txt").read_text().splitlines())
    with (large / "vocab.txt").open("a") as file:
        file.writelines(f"more{number}\n" for number in range(9))
    message = rf"{large}: the tokenizer must have at most {count + 3} tokens .*, but has {count + 9}"
    with pytest.raises(ModelFileError, match=message):
        train(rows, large)
    no_cls = tmp_path / "no_cls"
    shutil.copytree(bert_folder, no_cls)
    (no_cls / "vocab.txt").unlink()
    train_tokenizer("words", TEXTS, 20).save(no_cls / "tokenizer.json")
    (no_cls / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    message = (
        r"^the tokenizer must have the special tokens \[CLS\] and \[SEP\] or <s> and </s>, but has <unk>; "
        r"use the tokenizer\.json that belongs to the model$"
    )
    with pytest.raises(ModelFileError, match=message):
        train(rows, no_cls)


def test_a_base_has_its_own_training_defaults(bert_folder):
    for tune, lr in (("all", 5e-5), ("lora", 1e-3), ("head", 1e-3)):
        _, training = api.configure(Task, [f"base={bert_folder}", f"tune={tune}"])
        assert (training.epochs, training.optim.lr, training.optim.kind) == (3, lr, "adamw")
    _, training = api.configure(Task, [f"base={bert_folder}", "train.steps=9", "train.optim.lr=0.1"])
    assert (training.epochs, training.steps, training.optim.lr) == (0, 9, 0.1)
    assert api.configure(Task, [])[1].optim.lr != 5e-5


def test_a_marian_translates_as_transformers_does(marian_folder):
    model = saccade.load(str(marian_folder), device="cpu")
    assert isinstance(model.task, translation.Task)
    prediction = model("The cat sat.", beam=1)
    ids = [*model.task.tokenizers.source.encode("The cat sat."), 0]
    library_model = transformers.MarianMTModel.from_pretrained(marian_folder).eval()
    pad = library_model.config.pad_token_id
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 2 * len(ids) + 20, "bad_words_ids": [[pad]]}
    expected = library_model.generate(torch.tensor([ids]), **options)[0].tolist()[1:]
    expected = expected[: expected.index(0)] if 0 in expected else expected
    generated = prediction.trace[1]
    assert generated[: len(expected)] == expected[: len(generated)]
    assert {"encoder.0.self", "decoder.1.cross"} <= set(prediction.attention)
    source = prediction.attention["decoder.1.cross"].keys
    assert "".join(source.labels[:-1]) == " The cat sat."
