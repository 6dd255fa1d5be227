"""Generation by pretrained folders: the same ids and texts as transformers' generate, until any of the ends."""

import json

import pytest
import torch

import saccade
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

TEXT = "the cat sat on the mat and the dog ran to the cat"
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PROMPTS = ("the cat", "the dog<|im_end|>\n<|im_start|>", "<|endoftext|>", " on 12345")
ROWS = 400  # of the embedding, more than the tokenizer has tokens


@pytest.fixture
def folder(tmp_path):
    """A random Llama whose vocabulary is larger than its tokenizer."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=ROWS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.5)
    model.save_pretrained(tmp_path / "model")
    train_tokenizer("bpe", [TEXT], 300, SPECIALS).save(tmp_path / "model" / "tokenizer.json")
    return tmp_path / "model"


def theirs(folder, prompt, count=20):
    """The new ids and their text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    new = model.generate(ids, do_sample=False, max_new_tokens=count)[0, ids.shape[1] :].tolist()
    return ids[0].tolist(), new, tokenizer.decode(new, skip_special_tokens=True)


def ours(folder, prompt, count=20):
    prediction = saccade.load(str(folder), device="cpu")(prompt, temperature=0, max_new_tokens=count)
    ids = prediction.trace.ids
    return ids[: prediction.trace.prompt], ids[prediction.trace.prompt :], prediction.text


def set_ends(folder, name, ends):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": ends}))


def test_ids_beyond_the_tokenizer_have_no_text(folder):
    beyond = 0
    for prompt in PROMPTS:
        expected, actual = theirs(folder, prompt), ours(folder, prompt)
        assert actual == expected
        beyond += sum(token >= 300 for token in expected[1])
    assert beyond > 0
    model = saccade.load(str(folder), device="cpu")
    tokens = list(model.stream(PROMPTS[0], temperature=0, max_new_tokens=20, attention=True))
    assert "".join(map(str, tokens)) == theirs(folder, PROMPTS[0])[2]
    _, new, _ = theirs(folder, PROMPTS[0])
    unknown = next(token for token in new if token >= 300)
    labels = model(PROMPTS[0], temperature=0, max_new_tokens=20).attention["decoder.0.self"].keys.labels
    assert f"[{unknown}]" in labels


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_generation_stops_at_every_end(folder, name):
    _, new, _ = theirs(folder, PROMPTS[0])
    first, second = (new[position] for position in (3, 6))
    assert first not in new[:3] and second not in new[:6]
    if name == "config.json":
        (folder / "generation_config.json").unlink(missing_ok=True)
    for ends, length in ((second, 6), ([second, first], 3), ([first, second], 3)):
        set_ends(folder, name, ends)
        _, expected, _ = theirs(folder, PROMPTS[0])
        _, actual, text = ours(folder, PROMPTS[0])
        assert actual == expected[:-1] and len(actual) == length  # transformers returns the end too
        assert text == transformers.AutoTokenizer.from_pretrained(folder).decode(actual, skip_special_tokens=True)


def test_the_ends_of_generation_config_hide_those_of_config(folder):
    _, new, _ = theirs(folder, PROMPTS[0])
    set_ends(folder, "config.json", new[2])
    set_ends(folder, "generation_config.json", new[5])
    _, expected, _ = theirs(folder, PROMPTS[0])
    assert ours(folder, PROMPTS[0])[1] == expected[:-1] == new[:5]


def test_a_beginning_is_put_before_a_prompt_and_an_empty_one_starts_with_it(folder):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"] = {"type": "RobertaProcessing", "sep": [SPECIALS[2], 2], "cls": [SPECIALS[1], 1]}
    content["post_processor"] |= {"trim_offsets": True, "add_prefix_space": False}
    path.write_text(json.dumps(content))
    for prompt in PROMPTS:
        expected = theirs(folder, prompt)
        assert ours(folder, prompt) == expected
        assert expected[0][0] == 1 and expected[0][-1] == 2
    content["post_processor"] = None
    path.write_text(json.dumps(content))
    model = saccade.load(str(folder), device="cpu")
    assert model("", temperature=0, max_new_tokens=3).trace.ids[:1] == [0]  # bos_token_id


def test_a_message_is_asked_with_the_template_of_the_folder_and_a_prompt_continued(folder):
    template = "{% for m in messages %}" + SPECIALS[0] + "{{ m.role[0] ~ ' ' ~ m.content }}{% endfor %} the"
    (folder / "chat_template.jinja").write_text(template)
    model, oracle = saccade.load(str(folder), device="cpu"), transformers.AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "system", "content": "a dog"}, {"role": "user", "content": "the cat"}]
    expected = oracle.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    prediction = model("the cat", system="a dog", chat="yes", max_new_tokens=3)
    assert prediction.trace.ids[: prediction.trace.prompt] == expected == model.engine(1).encode_chat(messages)
    assert model("the cat", max_new_tokens=3).trace.ids[:2] == oracle("the cat").input_ids[:2]
    with pytest.raises(UsageError, match=r"a role must be a word such as user or assistant, but is 'a\\nb'"):
        model.engine(1).encode_chat([{"role": "a\nb", "content": "the cat"}])
    with pytest.raises(UsageError, match="system must be empty unless the prompt is a message"):
        model("the cat", system="Be kind.")


def test_an_exported_folder_renders_the_same_template(folder, tmp_path):
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": SPECIALS[1], "eos_token": SPECIALS[2]}))
    model, messages = saccade.load(str(folder), device="cpu"), [{"role": "user", "content": "the cat"}]
    model.export(tmp_path / "out")
    ids = saccade.load(str(tmp_path / "out"), device="cpu").engine(1).encode_chat(messages)
    assert ids == model.engine(1).encode_chat(messages) and (ids[0], ids[-1]) == (1, 2)


def test_a_model_without_a_template_is_not_asked(folder):
    message = "needs a model with a chat template, but this one has none; continue a text with `saccade predict`"
    with pytest.raises(UsageError, match=message):
        saccade.load(str(folder), device="cpu")("the cat", chat="yes")


def test_spaces_are_not_cleaned_up_in_silence(folder):
    train_tokenizer("wordpiece", [TEXT], 100).save(folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text('{"clean_up_tokenization_spaces": true}')
    with pytest.raises(ModelFileError, match="clean_up_tokenization_spaces must be false for a language model"):
        saccade.load(str(folder), device="cpu")


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_no_numbers_are_refused(folder, temperature):
    model = saccade.load(str(folder), device="cpu")
    model.task.model.head.weight.data.fill_(float("nan"))
    message = "must be finite, but are not: a weight is not a number or too large"
    with pytest.raises(ModelFileError, match=message):
        model("the cat", temperature=temperature)
    with pytest.raises(ModelFileError, match=message):
        list(model.stream("the cat", temperature=temperature))
