"""Chat models: trained on chat logs, asked with a message, exported with their template."""

import json

import pytest
import torch

import saccade
from saccade.core.source import Split
from saccade.data.text.chat import CHATML, TURN_END, Message, encode_question
from saccade.errors import DataError
from saccade.tasks._language_model.batch import TextBatch

ANSWERS = {"red": "stop", "green": "go", "amber": "wait"}
SHAPE = ["model.dim=48", "model.depth=1", "model.heads=2", "model.max_positions=48", "batch_size=8", "train.device=cpu"]


def chat(number, **extra):
    colour = list(ANSWERS)[number % 3]
    question = {"role": "user", "content": f"{colour} {number % 7}?"}
    return {"messages": [question, {"role": "assistant", "content": ANSWERS[colour]}], **extra}


def write(path, count=300):
    path.write_text("".join(json.dumps(chat(number, id=number)) + "\n" for number in range(count)))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    notes = []

    class Notes(saccade.Callback):
        def log(self, message):
            notes.append(message)

    data = write(folder / "chats.jsonl")
    overrides = [*SHAPE, "train.optim.lr=0.01", "train.steps=250"]
    run = saccade.train(data, preset="", root=folder / "runs", overrides=overrides, callbacks=[Notes()], progress=False)
    return run, notes, data


def test_chats_are_detected_reported_and_learned(run):
    trained, notes, _ = run
    assert "task: language_model" in notes
    assert any(note.startswith("chats: 300 conversations (key messages) in ChatML; learns what the") for note in notes)
    assert (trained.path / "assets" / "chat_template.jinja").read_text() == CHATML
    model = saccade.load(trained.path, device="cpu")
    answers = [model(f"{colour} {number}?", temperature=0).text for colour in ANSWERS for number in (2, 5)]
    assert answers == [answer for answer in ANSWERS.values() for _ in range(2)]
    assert "".join(map(str, model.stream("red 1?", temperature=0))) == "stop"
    assert not model.task.continues
    plain = model("red", temperature=0, chat="no", max_new_tokens=2)
    assert plain.trace.ids[: plain.trace.prompt] == model.task.tokenizer.encode("red")
    metrics = trained.evaluation.values
    assert "bits_per_byte" not in metrics and metrics["loss"] < 0.1


def test_only_what_the_assistant_says_has_a_loss(run):
    trained, _, data = run
    task = saccade.load(trained.path, device="cpu").task
    task.load_data(data)
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    end = task.tokenizer.specials[TURN_END]
    labels = batch.labels[batch.labels >= 0].tolist()
    text = task.tokenizer.decode([token for token in labels if token != end])
    assert set(text) <= set("".join(ANSWERS.values())) and batch.count == len(labels) < batch.units
    other = TextBatch(batch.ids, batch.starts, torch.zeros_like(batch.ids[:, 1:], dtype=torch.bool))
    ((_, nothing),) = task.losses(other, task.networks())
    assert float(nothing.detach()) == 0.0 and other.count == 1
    everything = saccade.load(trained.path, device="cpu").task
    object.__setattr__(everything.config.data, "chat_loss", "all")
    everything.load_data(data)
    assert everything.source(Split.TRAIN, 1).at(0)[0].learned is None
    evaluation = everything.evaluate(Split.VALID)
    assert evaluation.values["tokens"] == everything.shards[Split.VALID].size - 1
    assert evaluation.values["loss"] > task.evaluate(Split.VALID).values["loss"]


def test_a_chat_model_is_not_evaluated_on_other_texts(run, tmp_path):
    model = saccade.load(run[0].path, device="cpu")
    (tmp_path / "text.txt").write_text("red green amber " * 100)
    with pytest.raises(DataError, match="no chats, expected the key messages or conversations"):
        model.evaluate(tmp_path / "text.txt")
    assert model.evaluate(write(tmp_path / "other.jsonl", 30)).values["loss"] < 0.5


def test_training_and_validation_data_must_both_be_chats(tmp_path):
    write(tmp_path / "chats.jsonl")
    (tmp_path / "valid.txt").write_text("red green amber " * 100)
    with pytest.raises(DataError, match="must both be chats, but are chats and plain texts"):
        saccade.train(tmp_path / "chats.jsonl", valid=str(tmp_path / "valid.txt"), root=tmp_path / "runs", steps=1)


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_an_exported_chat_model_has_the_ids_of_apply_chat_template(kind, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")
    overrides = [*SHAPE, "train.steps=2", f"data.tokenizer={kind}", "data.vocabulary_size=300"]
    data = write(tmp_path / "chats.jsonl")
    run = saccade.train(data, preset="llama-tiny", root=tmp_path / "runs", overrides=overrides)
    model = saccade.load(run.path, device="cpu")
    model.export(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    messages = [{"role": "user", "content": "red 2?"}, chat(0)["messages"][1], {"role": "user", "content": " go?"}]
    theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    ours = encode_question(model.task.tokenizer, [Message(**message) for message in messages])
    assert ours == list(theirs)
    assert tokenizer.eos_token == TURN_END
    again = saccade.load(str(tmp_path / "out"), device="cpu")
    assert again.task.eos_ids == model.task.eos_ids and len(again.task.eos_ids) == 2
    asked = again("red 2?", chat="yes", temperature=0, max_new_tokens=5)
    assert asked.trace.ids == model("red 2?", temperature=0, max_new_tokens=5).trace.ids
    plain = again("red 2?", temperature=0, max_new_tokens=5).trace
    assert plain.ids[: plain.prompt] == model.task.tokenizer.encode("red 2?")
    with_system = again("red 2?", chat="yes", system="go", temperature=0, max_new_tokens=1).trace
    system = [{"role": "system", "content": "go"}, messages[0]]
    theirs = tokenizer.apply_chat_template(system, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert with_system.ids[: with_system.prompt] == list(theirs)
