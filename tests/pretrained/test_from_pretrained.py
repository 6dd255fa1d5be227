"""Models from elsewhere as tasks and as bases: their weights are taken over, and only what is said is trained."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from saccade import api
from saccade.config import override
from saccade.data.text.tokenizers import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained import tasks as foreign
from saccade.runs import checkpoint
from saccade.tasks import language_model, load_task, masked_language_model, sentence_vectors
from saccade.tasks.text_classification import Task
from saccade.training.loop import Trainer

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

TEXTS = ["the cat sat on the red mat.", "a dog", "the blue dog ran, did he?"]
LOOP = ["train.device=cpu", "train.steps=6", "train.evaluate_every=3", "max_length=32", "tokens=200"]


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.tsv"
    lines = [f"the {'cat' if at % 3 else 'dog'} sat {at}\t{'cat' if at % 3 else 'dog'}\n" for at in range(60)]
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
    """The encoder of the tiny BERT alone, without what guesses words."""
    folder = tmp_path / "bare"
    transformers.BertModel.from_pretrained(bert_folder, add_pooling_layer=False).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(bert_folder / name, folder)
    return folder


def theirs(folder, text, second=None):
    """The last states (T, D) and the input of one text or two, by transformers alone."""
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    given = tokenizer(text, second, return_tensors="pt")
    with torch.no_grad():
        return transformers.BertModel.from_pretrained(folder).eval()(**given).last_hidden_state[0], given


def weights(run, step):
    return checkpoint.read(checkpoint.at(run.checkpoints, step), ("model",)).parts["model"]


def trained(rows, base, *words, task="text_classification", name="made"):
    config = [*LOOP, f"base={base}", *words]
    return api.train(rows, config, task=task, name=name, root=rows.parent / "runs").run


def test_what_can_mean_a_model_from_elsewhere(bert_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert all(map(foreign.is_foreign, ["minilm", str(bert_folder), "model.gguf", "owner/name"]))
    assert not any(map(foreign.is_foreign, ["book-1", "runs/book-1", str(tmp_path), "a/b/c"]))


def test_a_bert_guesses_words_as_in_transformers(bert_folder):
    opened = api.load(str(bert_folder), device="cpu")
    assert isinstance(opened, masked_language_model.Task)
    found = api.predict(opened, "the [MASK] sat.", ["best=100", "second=a dog ran."])
    _, given = theirs(bert_folder, "the [MASK] sat.", "a dog ran.")
    with torch.no_grad():
        answer = transformers.BertForPreTraining.from_pretrained(bert_folder).eval()(**given)
    place = given.input_ids[0].tolist().index(opened.frame.mask_id)
    assert opened.model.bert.embedding.num_embeddings > opened.tokenizer.size  # rows that no token has
    chances = answer.prediction_logits[0, place, : opened.tokenizer.size].softmax(-1)
    for number, chance in enumerate(chances.tolist()):
        assert found.scores[opened.tokenizer.token(number)] == pytest.approx(chance, abs=1e-5)
    assert found.scores["follows"] == pytest.approx(float(answer.seq_relationship_logits.softmax(-1)[0, 0]), abs=1e-5)


def test_an_encoder_alone_gives_the_vectors_of_transformers(bare_folder):
    opened = api.load(str(bare_folder), device="cpu")
    assert isinstance(opened, sentence_vectors.Task)
    for text in TEXTS:
        vector = json.loads(api.predict(opened, text).output)
        assert vector == pytest.approx(theirs(bare_folder, text)[0].mean(0).tolist(), abs=1e-4)


def test_a_gpt2_goes_on_with_a_text(gpt2_folder):
    opened = api.load(str(gpt2_folder), device="cpu")
    assert isinstance(opened, language_model.Task)
    ids = torch.tensor([opened.tokenizer.encode("the cat")])
    with torch.no_grad():
        expected = transformers.GPT2LMHeadModel.from_pretrained(gpt2_folder).eval()(ids).logits
        torch.testing.assert_close(opened.model(ids), expected, atol=1e-4, rtol=1e-4)


def test_a_model_that_no_task_can_run_is_refused(monkeypatch):
    strange = SimpleNamespace(model=torch.nn.Linear(1, 1), config=None, family=SimpleNamespace(name="marian"))
    opened = SimpleNamespace(foreign=strange, tokenizer=None)
    monkeypatch.setattr(foreign, "open_model", lambda word: opened)
    with pytest.raises(UsageError, match=r"^owner/name is a marian, which no task here can run as it is$"):
        foreign.open_task("owner/name")


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_a_base_is_taken_over_before_anything_is_trained(rows, bert_folder, tmp_path, tune):
    kind = load_task("text_classification")
    config = override(kind.Config(), ["max_length=32", f"base={bert_folder}", f"tune={tune}"])
    assets = tmp_path / "assets"
    assets.mkdir()
    notes = kind.prepare(config, rows, assets)
    assert any(note.startswith(f"base: {bert_folder}, bert, 0.0 M parameters") for note in notes)
    opened = kind.open(config, assets)
    framed = [opened.framed(text) for text in TEXTS] + [opened.framed(TEXTS[0], TEXTS[1])]
    pairs = [(text, None) for text in TEXTS] + [(TEXTS[0], TEXTS[1])]
    for at, vectors in opened.features(framed):
        expected, given = theirs(bert_folder, *pairs[at])
        assert framed[at][0] == given.input_ids[0].tolist()
        torch.testing.assert_close(vectors, expected, atol=1e-4, rtol=1e-4)


def test_a_base_brings_its_guesses_to_a_masked_language_model(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    book = tmp_path / "book.txt"
    book.write_text("".join(f"the cat sat {at}. The dog ran {at}.\n" for at in range(40)))
    config = [
        "max_length=32",
        f"base={bert_folder}",
        "train.steps=1",
        "train.optim.lr=0",
        "train.device=cpu",
        "tokens=200",
    ]
    run = api.train(book, config, task="masked_language_model", name="made", root=tmp_path / "runs").run
    ours, before = (api.load(word, device="cpu") for word in (run.folder, str(bert_folder)))
    answers = [api.predict(task, "the [MASK] sat.", ["best=9", "second=a dog."]).scores for task in (ours, before)]
    assert answers[0] == pytest.approx(answers[1], abs=1e-5)


def test_only_the_head_learns_where_the_encoder_is_frozen(rows, bert_folder):
    run = trained(rows, bert_folder, "tune=head")
    base, after = load_file(run.assets / "base.safetensors"), weights(run, 6)
    encoder = [name for name in after if name.startswith("bert.")]
    assert {name for name in base if name.startswith("bert.") and "pooler" not in name} == set(encoder)
    assert all(torch.equal(after[name], base[name]) for name in encoder)
    assert after["head.weight"].abs().sum() > 0


def test_only_the_changes_of_low_rank_learn_and_the_head(rows, bert_folder):
    run = trained(rows, bert_folder, "tune=lora", "rank=3")
    base, after = load_file(run.assets / "base.safetensors"), weights(run, 6)
    changes = [name for name in after if name.endswith((".lower", ".upper"))]
    assert {after[name].shape[0] for name in changes if name.endswith("lower")} == {3}
    for name, value in after.items():
        if name in changes:
            assert value.abs().sum() > 0, name
        elif not name.startswith("head."):
            assert torch.equal(value, base[name]), name
    assert after["head.weight"].abs().sum() > 0


def test_all_of_it_learns_where_nothing_else_is_said(rows, bert_folder):
    run = trained(rows, bert_folder)
    base, after = load_file(run.assets / "base.safetensors"), weights(run, 6)
    taken = [name for name in after if name in base]
    assert len(taken) == len(after) - 2  # all but the head
    assert [name for name in taken if torch.equal(after[name], base[name])] == []


@pytest.mark.parametrize("tune", ["all", "lora", "head"])
def test_a_stopped_run_with_a_base_goes_on_as_if_it_had_not_been(rows, bert_folder, monkeypatch, tune):
    words = ["train.save_every=2", f"tune={tune}"]
    whole = trained(rows, bert_folder, *words, name="whole")
    step = Trainer._train_step

    def breaks(self):
        if self.step == 5:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", breaks)
        with pytest.raises(KeyboardInterrupt):
            trained(rows, bert_folder, *words, name="broken")
    broken = rows.parent / "runs" / "broken"
    assert checkpoint.steps(broken / "checkpoints")[-1] == 4
    api.resume(broken)
    for name in ("model.safetensors", "optimizer.safetensors"):
        ends = [checkpoint.at(folder / "checkpoints", 6) / name for folder in (whole.folder, broken)]
        assert ends[0].read_bytes() == ends[1].read_bytes(), name


def test_a_run_needs_its_base_no_longer(rows, bert_folder, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(bert_folder, moved)
    run = trained(rows, moved)
    before = api.predict(api.load(run.folder, device="cpu"), TEXTS[0])
    shutil.rmtree(moved)
    assert api.predict(api.load(run.folder, device="cpu"), TEXTS[0]).scores == before.scores


def test_a_base_that_cannot_be_one_is_refused(rows, bert_folder, gpt2_folder, tmp_path):
    says = rf"^base must be an encoder such as BERT, but {gpt2_folder} is a gpt2$"
    with pytest.raises(UsageError, match=says):
        trained(rows, gpt2_folder)
    with pytest.raises(UsageError, match=r"^no model 'minilmm'; did you mean 'minilm'\?; name a folder that exists"):
        trained(rows, "minilmm")
    large = tmp_path / "large"
    shutil.copytree(bert_folder, large)
    count = len((large / "vocab.txt").read_text().splitlines())
    with (large / "vocab.txt").open("a") as file:
        file.writelines(f"more{at}\n" for at in range(9))
    says = rf"{large}: the tokenizer must have at most {count + 3} tokens, as config.json says, but has {count + 9}"
    with pytest.raises(ModelFileError, match=says):
        trained(rows, large)
    marks = tmp_path / "marks"
    shutil.copytree(bert_folder, marks)
    (marks / "vocab.txt").unlink()
    train_tokenizer("words", TEXTS, 20).save(marks / "tokenizer.json")
    says = r"^the tokenizer must have the marks \[CLS\] and \[SEP\] or <s> and </s>, but has <unk>$"
    with pytest.raises(ModelFileError, match=says):
        trained(rows, marks)


def test_small_steps_and_few_epochs_are_advised_for_a_base(bert_folder):
    for tune, rate in (("all", 5e-5), ("lora", 1e-3), ("head", 1e-3)):
        _, training = api.configure(Task, [f"base={bert_folder}", f"tune={tune}"])
        assert (training.epochs, training.optim.lr, training.optim.kind) == (3, rate, "adamw")
    _, training = api.configure(Task, [f"base={bert_folder}", "train.steps=9", "train.optim.lr=0.1"])
    assert (training.epochs, training.steps, training.optim.lr) == (0, 9, 0.1)
    assert api.configure(Task, [])[1].optim.lr != 5e-5


def test_a_marian_translates_as_transformers_does(marian_folder):
    transformers = pytest.importorskip("transformers")
    opened = api.load(str(marian_folder), device="cpu")
    found = api.predict(opened, "The cat sat.", ["beam=1"])
    ids = [*opened.reader.source.encode("The cat sat."), 0]
    model = transformers.MarianMTModel.from_pretrained(marian_folder).eval()
    pad = model.config.pad_token_id
    how = {"do_sample": False, "num_beams": 1, "max_new_tokens": 2 * len(ids) + 20, "bad_words_ids": [[pad]]}
    theirs = model.generate(torch.tensor([ids]), **how)[0].tolist()[1:]
    theirs = theirs[: theirs.index(0)] if 0 in theirs else theirs
    assert found.trace[1][: len(theirs)] == theirs[: len(found.trace[1])]
    assert {read.name for read in found.maps} >= {"encoder.0.self", "decoder.1.cross"}
    source = next(read for read in found.maps if read.name == "decoder.1.cross").keys
    assert "".join(source.labels[:-1]) == " The cat sat."
