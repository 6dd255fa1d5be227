"""Heads: classifiers, taggers and readers of transformers run as the tasks they are, and ours open in transformers."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import saccade
from saccade.data.formats.squad import Question, Questions
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.errors import ModelFileError, UsageError
from saccade.pretrained.config_json import read_config
from saccade.pretrained.exports.hf import export
from saccade.pretrained.families.heads import read_head
from saccade.pretrained.opening import open_pretrained, read_network

transformers = pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

FAMILIES = ("bert", "roberta", "distilbert")
CLASSES = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}
TEXTS = ["the cat sat on the red mat.", "a dog", "the blue dog ran, did he?"]
CORPUS = [*TEXTS, "abcdefghijklmnopqrstuvwxyz 0123456789 who what where", "The Dog And A Cat"]
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
# dim, layers, heads, inner width and further fields: odd on purpose
SHAPES = [(24, 2, 4, 40, {}), (10, 1, 5, 7, {"act": "relu"}), (36, 3, 1, 20, {"act": "gelu_new", "types": 3})]


def config_of(family, shape, **fields):
    """A config of transformers."""
    dim, depth, heads, hidden, options = shape
    act, types = options.get("act", "gelu"), options.get("types", 2)
    if family == "distilbert":
        sizes = {"dim": dim, "n_layers": depth, "n_heads": heads, "hidden_dim": hidden, "activation": act}
        return transformers.DistilBertConfig(vocab_size=310, max_position_embeddings=40, **sizes, **fields)
    sizes = {"hidden_size": dim, "num_hidden_layers": depth, "num_attention_heads": heads, "intermediate_size": hidden}
    sizes |= {"hidden_act": act, "type_vocab_size": types}
    if family == "bert":
        return transformers.BertConfig(vocab_size=310, max_position_embeddings=40, **sizes, **fields)
    return transformers.RobertaConfig(vocab_size=310, max_position_embeddings=42, **sizes, **fields)


def write_tokenizer(family, folder):
    """A small tokenizer as those of the family are."""
    if family == "roberta":
        train_tokenizer("bpe", CORPUS, 300, ROBERTA_TOKENS).save(folder / "tokenizer.json")
        written = json.loads((folder / "tokenizer.json").read_text())
        ends = {"sep": ["</s>", 2], "cls": ["<s>", 0]}
        written["post_processor"] = {"type": "RobertaProcessing", **ends}
        written["post_processor"] |= {"trim_offsets": True, "add_prefix_space": False}
        (folder / "tokenizer.json").write_text(json.dumps(written))
        names = {"tokenizer_class": "RobertaTokenizer", "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>"}
        names |= {"sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
        return
    tokenizer = train_tokenizer("wordpiece", CORPUS, 150, lowercase=True)
    (folder / "vocab.txt").write_text("".join(f"{tokenizer.token(number)}\n" for number in range(tokenizer.size)))
    name = "BertTokenizer" if family == "bert" else "DistilBertTokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "tokenizer_class": name}))


def write_folder(folder, family, kind, shape=SHAPES[0], **fields):
    """A random model of transformers with its tokenizer; returns the model."""
    torch.manual_seed(3)
    model = getattr(transformers, f"{CLASSES[family]}For{kind}")(config_of(family, shape, **fields)).eval()
    randomize(model)
    model.save_pretrained(folder)
    write_tokenizer(family, folder)
    return model


def randomize(network):
    """Give a network large random weights: a head that was trained for a few steps is nearly 0."""
    with torch.no_grad():
        for value in network.parameters():
            value.normal_(std=0.3)


def their_inputs(folder, *texts, **options):
    return transformers.AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt", **options)


def open_again(kind, folder):
    """Our export in transformers, with no weight missing or left over."""
    model, report = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    return model.eval()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification", None])
def test_a_sequence_classifier_has_the_probabilities_of_transformers_and_is_written_back(
    family, shape, problem, tmp_path
):
    labels = {0: "no", 1: "yes, it is", 2: "maybe"}
    names = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    theirs = write_folder(tmp_path / "theirs", family, "SequenceClassification", shape, problem_type=problem, **names)
    model = saccade.load(str(tmp_path / "theirs"), device="cpu")
    assert model.task.task_name() == "text_classification" and model.task.labels == tuple(labels.values())
    assert model.export(tmp_path / "ours")[:1] == [f"{tmp_path / 'ours'}: a {family} for transformers"]
    again = open_again("SequenceClassification", tmp_path / "ours")
    assert again.config.id2label == labels
    assert again.config.problem_type == (problem or "single_label_classification")
    pairs = [(text, None) for text in TEXTS] + [(TEXTS[0], TEXTS[1])]
    predictions = model([{"text": text, **({"second": second} if second else {})} for text, second in pairs])
    for (text, second), prediction in zip(pairs, predictions, strict=True):
        inputs = their_inputs(tmp_path / "theirs", *filter(None, (text, second)))
        with torch.no_grad():
            logits = theirs(**inputs).logits[0]
            torch.testing.assert_close(again(**inputs).logits[0], logits, atol=1e-4, rtol=1e-4)
            ours = model.task.logits([model.task.encode(text, second)])[0]
        torch.testing.assert_close(ours, logits, atol=1e-4, rtol=1e-4)
        expected = logits.sigmoid() if problem == "multi_label_classification" else logits.softmax(-1)
        assert [prediction.scores[label] for label in labels.values()] == pytest.approx(expected.tolist(), abs=1e-4)
        if problem != "multi_label_classification":
            assert prediction.text == labels[int(logits.argmax())]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("problem", ["regression", None])
def test_a_single_output_is_a_number(family, problem, tmp_path):
    folder = tmp_path / "theirs"
    theirs = write_folder(folder, family, "SequenceClassification", num_labels=1, problem_type=problem)
    model = saccade.load(str(folder), device="cpu")
    assert model.task.task_name() == "regression"
    model.export(tmp_path / "ours")
    again = open_again("SequenceClassification", tmp_path / "ours")
    assert (again.config.num_labels, again.config.problem_type) == (1, "regression")
    for text in TEXTS:
        inputs = their_inputs(folder, text)
        with torch.no_grad():
            number = float(theirs(**inputs).logits)
            assert float(again(**inputs).logits) == pytest.approx(number, abs=1e-4)
        assert model(text).scores["value"] == pytest.approx(number, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_classifier_has_the_tags_of_transformers_and_is_written_back(family, shape, tmp_path):
    labels = {0: "B-PET", 1: "O", 2: "I-PET"}
    names = {"id2label": labels, "label2id": {label: number for number, label in labels.items()}}
    folder = tmp_path / "theirs"
    theirs = write_folder(folder, family, "TokenClassification", shape, **names)
    model = saccade.load(str(folder), device="cpu")
    assert model.task.task_name() == "tagging"
    model.export(tmp_path / "ours")
    again = open_again("TokenClassification", tmp_path / "ours")
    assert again.config.id2label == labels
    for text in TEXTS:
        encoded = model.task.encode_words(text.split())
        ids = torch.tensor([encoded.ids])
        if family != "roberta":  # which here puts no space before the first word of a text
            assert encoded.ids == their_inputs(folder, text.split(), is_split_into_words=True).input_ids[0].tolist()
        with torch.no_grad():
            logits = theirs(ids).logits
            torch.testing.assert_close(again(ids).logits, logits, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(model.task.model((ids, None, None)), logits, atol=1e-4, rtol=1e-4)
        prediction = model(text)
        assert prediction.output.tags == tuple(labels[tag] for tag in logits[0, encoded.positions].argmax(-1).tolist())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_reader_has_the_logits_of_transformers_and_is_written_back(family, shape, tmp_path):
    folder = tmp_path / "theirs"
    theirs = write_folder(folder, family, "QuestionAnswering", shape)
    model = saccade.load(str(folder), device="cpu")
    assert model.task.task_name() == "question_answering"
    model.export(tmp_path / "ours")
    again = open_again("QuestionAnswering", tmp_path / "ours")
    question, context = "who sat?", "the cat sat on the red mat."
    (window,) = model.task.windows(Questions.of([Question("", "", context, question, (), 1)]))
    inputs = their_inputs(folder, question, context)
    assert window.ids == inputs.input_ids[0].tolist()
    with torch.no_grad():
        expected = theirs(**inputs)
        logits = torch.stack((expected.start_logits, expected.end_logits), dim=-1)
        written = again(**inputs)
        torch.testing.assert_close(
            torch.stack((written.start_logits, written.end_logits), -1), logits, atol=1e-4, rtol=0
        )
    ((_, ours),) = model.task.run_batched(
        [model.task.encode(question, context)], lambda network, batch, _: network(batch)
    )
    torch.testing.assert_close(ours, logits[0], atol=1e-4, rtol=1e-4)
    assert model(question, context=context).text in context


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_encoded_and_truncated_as_by_transformers(family, tmp_path):
    write_folder(tmp_path, family, "SequenceClassification")
    task = saccade.load(str(tmp_path), device="cpu").task
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    words = "the cat sat on the red mat and a dog ran"
    for first, second in ((3, 4), (3, 40), (40, 3), (40, 40), (15, 17), (17, 15), (16, 40), (0, 50)):
        texts = " ".join((words.split() * 6)[:first]), " ".join((words.split() * 6)[:second])
        for length in (40, 39, 16):
            expected = tokenizer(*texts, truncation=True, max_length=length)
            template = type(task.template)(**{**vars(task.template), "max_length": length})
            ids, start = template.build(*task.tokenizer.encode_batch(texts))
            assert ids == expected["input_ids"], (first, second, length)
            if family == "bert":
                assert [int(at >= start) for at in range(len(ids))] == expected["token_type_ids"]


@pytest.mark.parametrize("types", [1, 2])
def test_pairs_are_trained_from_a_roberta_whose_token_types_are_all_0(types, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    base = tmp_path / "base"
    theirs = transformers.RobertaModel(config_of("roberta", (*SHAPES[0][:4], {"types": types}))).eval()
    theirs.save_pretrained(base)
    write_tokenizer("roberta", base)
    rows = tmp_path / "pairs.tsv"
    lines = [f"the cat {number}\tthe {'cat' if number % 2 else 'dog'} {number}\t{number % 2}\n" for number in range(40)]
    rows.write_text("first\tsecond\tlabel\n" + "".join(lines))
    overrides = ["train.steps=2", "train.device=cpu", "max_length=32", "batch_tokens=200", "train.optim.lr=0"]
    run = saccade.train(
        rows,
        task="text_classification",
        root=tmp_path / "runs",
        overrides=[*overrides, f"base={base}", "pool=tanh", "train.optim.new_head_lr=0"],
    )
    task = saccade.load(run, device="cpu").task
    encoded = task.encode("the cat", "the dog")
    inputs = their_inputs(base, "the cat", "the dog")
    assert encoded.ids == inputs.input_ids[0].tolist()
    ((_, vectors),) = task.features([encoded])
    with torch.no_grad():
        torch.testing.assert_close(vectors, theirs(**inputs).last_hidden_state[0], atol=1e-4, rtol=1e-4)
    assert saccade.load(run, device="cpu")("the cat", second="the dog").text in ("0", "1")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_classifier_trained_with_the_published_head_opens_in_transformers(family, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    write_folder(tmp_path / "base", family, "MaskedLM")
    rows = tmp_path / "rows.tsv"
    lines = [f"the cat sat {number}\ta dog\t{'ab'[number % 2]}\n" for number in range(40)]
    rows.write_text("first\tsecond\tlabel\n" + "".join(lines))
    overrides = ["train.steps=2", "train.device=cpu", "max_length=32", "batch_tokens=200", f"base={tmp_path / 'base'}"]
    overrides.append("pool=relu" if family == "distilbert" else "pool=tanh")
    run = saccade.train(rows, task="text_classification", root=tmp_path / "runs", overrides=overrides)
    model = saccade.load(run, device="cpu")
    randomize(model.task.model)
    before = {name: value.clone() for name, value in model.task.model.state_dict().items()}
    assert model.export(tmp_path / "out")[:1] == [f"{tmp_path / 'out'}: a {family} for transformers"]
    assert all(torch.equal(value, before[name]) for name, value in model.task.model.state_dict().items())
    theirs = open_again("SequenceClassification", tmp_path / "out")
    assert theirs.config.id2label == {0: "a", 1: "b"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length == 32
    assert ("token_type_ids" in tokenizer("a")) == (family == "bert")
    for texts in (("the cat", "a dog ran"), ("the cat sat on the mat. " * 9, "a dog " * 9)):
        with torch.no_grad():
            logits = theirs(**tokenizer(*texts, truncation=True, return_tensors="pt")).logits[0]
        assert float(logits.abs().max()) > 0.1
        torch.testing.assert_close(model.task.logits([model.task.encode(*texts)])[0], logits, atol=1e-4, rtol=1e-4)


def test_a_published_head_starts_from_the_pooler_of_its_base(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"the cat sat {number}\t{number % 2}\n" for number in range(40)))
    overrides = ["train.steps=1", "train.device=cpu", "max_length=32", "train.optim.lr=0", f"base={bert_folder}"]
    run = saccade.train(rows, task="text_classification", root=tmp_path / "runs", overrides=[*overrides, "pool=tanh"])
    pooler = load_file(bert_folder / "model.safetensors")["bert.pooler.dense.weight"]
    assert torch.equal(saccade.load(run, device="cpu").task.model.dense.weight, pooler)


def test_the_mean_and_the_deviation_of_a_number_become_part_of_the_exported_head(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"the cat sat {number}\t{50 + 3 * number}\n" for number in range(40)))
    overrides = ["train.steps=3", "train.device=cpu", "max_length=32", "batch_tokens=200", f"base={bert_folder}"]
    run = saccade.train(rows, task="regression", root=tmp_path / "runs", overrides=[*overrides, "pool=tanh"])
    model = saccade.load(run, device="cpu")
    randomize(model.task.model)
    assert model.task.mean > 50 and model.task.deviation > 20
    model.export(tmp_path / "out")
    theirs = open_again("SequenceClassification", tmp_path / "out")
    with torch.no_grad():
        expected = float(theirs(**their_inputs(tmp_path / "out", "the cat sat")).logits)
    assert model("the cat sat").scores["value"] == pytest.approx(expected, rel=1e-5)


def test_a_trained_tagger_and_a_trained_reader_open_in_transformers(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    overrides = ["train.steps=3", "train.device=cpu", "max_length=32", "batch_tokens=200", f"base={bert_folder}"]
    tags = tmp_path / "tags.conll"
    tags.write_text("".join(f"the O\ncat B-PET\n{number} O\n\n" for number in range(40)))
    answers = [{"text": "cat", "answer_start": 4}]
    articles = [
        {
            "title": "",
            "paragraphs": [
                {"context": f"the cat {number}", "qas": [{"id": str(number), "question": "who?", "answers": answers}]}
            ],
        }
        for number in range(30)
    ]
    (tmp_path / "squad.json").write_text(json.dumps({"data": articles}))
    for data, task, kind, extra in (
        (tags, "tagging", "TokenClassification", []),
        (tmp_path / "squad.json", "question_answering", "QuestionAnswering", ["stride=8"]),
    ):
        run = saccade.train(data, task=task, name=task, root=tmp_path / "runs", overrides=[*overrides, *extra])
        model = saccade.load(run, device="cpu")
        randomize(model.task.model)
        model.export(tmp_path / kind)
        theirs = open_again(kind, tmp_path / kind)
        ids = torch.tensor([model.task.encode("the cat sat").ids])
        with torch.no_grad():
            expected = theirs(ids)
            logits = (
                expected.logits if task == "tagging" else torch.stack((expected.start_logits, expected.end_logits), -1)
            )
            torch.testing.assert_close(model.task.model((ids, None, None)), logits, atol=1e-4, rtol=1e-4)
        assert saccade.load(str(tmp_path / kind), device="cpu").task.task_name() == task


@pytest.mark.parametrize(
    ("family", "kind", "changes", "message"),
    [
        (
            "bert",
            "MultipleChoice",
            {},
            r"architectures must be one of BertModel, .*, but is 'BertForMultipleChoice'; the",
        ),
        ("bert", "NextSentencePrediction", {}, "but is 'BertForNextSentencePrediction'; the head of this class is not"),
        (
            "bert",
            "SequenceClassification",
            {"problem_type": "ranking"},
            "problem_type must be null, regression, .*ranking",
        ),
        (
            "roberta",
            "SequenceClassification",
            {"problem_type": "regression"},
            "num_labels must be 1 for the problem_type regression, but is 2",
        ),
        (
            "bert",
            "SequenceClassification",
            {"id2label": {"0": "a", "2": "b"}},
            "numbers of id2label must be 0 to 1, but",
        ),
        (
            "bert",
            "TokenClassification",
            {"id2label": {"0": "a", "1": "a"}},
            "names of id2label must be different, but are",
        ),
        (
            "distilbert",
            "SequenceClassification",
            {"id2label": None, "num_labels": 10**9},
            "num_labels must be from 1 to",
        ),
        (
            "bert",
            "SequenceClassification",
            {"id2label": {"0": "a", "1": "b", "2": "c"}},
            r"'head.weight' must have the sh",
        ),
        ("bert", "SequenceClassification", {"architectures": None}, "architectures must name the class of the head"),
    ],
)
def test_a_head_that_is_not_supported_is_refused_by_name(family, kind, changes, message, tmp_path):
    write_folder(tmp_path, family, kind)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ModelFileError, match=message) as caught:
        open_pretrained(str(tmp_path))
    assert "again" not in str(caught.value)


def test_any_value_of_the_fields_of_a_head_is_read_or_refused(tmp_path):
    write_folder(tmp_path, "bert", "SequenceClassification", num_labels=2)
    family, _, values = read_config(tmp_path)
    outcomes = set()
    for key in ("architectures", "id2label", "num_labels", "problem_type"):
        for value in (None, True, -1, 0, 10**30, 0.5, "", "x", [], ["x", 1], [1], {"x": {}}, {"0": [1], "1": None}, {}):
            try:
                head = read_head(tmp_path / "config.json", family, {**values, key: value})
            except ModelFileError as error:
                outcomes.add((key, "refused"))
                assert "again" not in str(error)
            else:
                outcomes.add((key, None if head is None else head.task))
    assert ("num_labels", "refused") in outcomes and ("id2label", "refused") in outcomes
    assert {outcome for key, outcome in outcomes if key == "architectures"} <= {None, "refused"}


def test_a_head_that_transformers_cannot_compute_is_refused_on_export(bert_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"the cat sat {number}\t{number % 2}\n" for number in range(40)))
    overrides = ["train.steps=1", "train.device=cpu", "max_length=32", f"base={bert_folder}"]
    run = saccade.train(rows, task="text_classification", root=tmp_path / "runs", overrides=overrides)
    message = r"^pool must be tanh for BertForSequenceClassification of transformers, but is mean; train .* pool=tanh"
    with pytest.raises(UsageError, match=message):
        saccade.load(run, device="cpu").export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pretrained_classifier_is_evaluated_on_single_texts_and_on_pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    theirs = write_folder(tmp_path / "theirs", "bert", "SequenceClassification", **labels)
    model = saccade.load(str(tmp_path / "theirs"), device="cpu")
    for name, row in (("single", "{}\t{}\n"), ("pairs", "{}\tthe dog\t{}\n")):
        data = tmp_path / f"{name}.tsv"
        header = "text\tlabel\n" if name == "single" else "first\tsecond\tlabel\n"
        expected = ["no" if number % 3 else "yes" for number in range(12)]
        texts = [f"{TEXTS[number % 3]} {number}" for number in range(12)]
        data.write_text(header + "".join(row.format(*pair) for pair in zip(texts, expected, strict=True)))
        others = [] if name == "single" else [["the dog"] * 12]
        with torch.no_grad():
            logits = theirs(**their_inputs(tmp_path / "theirs", texts, *others, padding=True)).logits
        predicted = [labels["id2label"][number] for number in logits.argmax(-1).tolist()]
        correct = sum(a == b for a, b in zip(predicted, expected, strict=True))
        assert model.evaluate(data).values["accuracy"] == pytest.approx(100 * correct / 12)


def test_a_classifier_cannot_run_as_another_task(tmp_path):
    write_folder(tmp_path, "bert", "SequenceClassification")
    with pytest.raises(
        UsageError, match="a bert cannot run as the task tagging; leave out --task, or use text_classif"
    ):
        saccade.load(str(tmp_path), device="cpu", task="tagging")


def test_a_head_is_not_the_start_of_a_task_with_other_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    base = tmp_path / "base"
    write_folder(base, "bert", "SequenceClassification", num_labels=5)
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"the cat sat {number}\t{number % 2}\n" for number in range(40)))
    overrides = ["train.steps=1", "train.device=cpu", "max_length=32", "pool=tanh", "train.optim.lr=0", f"base={base}"]
    run = saccade.train(rows, task="text_classification", root=tmp_path / "runs", overrides=overrides)
    model = saccade.load(run, device="cpu").task.model
    assert model.head.weight.shape[0] == 2
    assert torch.equal(model.dense.weight, load_file(base / "model.safetensors")["bert.pooler.dense.weight"])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_norms_of_old_checkpoints_are_called_gamma_and_beta(family, tmp_path):
    theirs = write_folder(tmp_path, family, "MaskedLM")
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in tensors.items()
    }
    assert renamed.keys() != tensors.keys()
    save_file(renamed, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = read_network(tmp_path)
    assert loaded.unused == ()
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        logits = theirs(ids).logits
        torch.testing.assert_close(loaded.network.mlm(loaded.network.bert(ids)), logits, atol=1e-4, rtol=1e-4)
    both = {**renamed, **{name: value.clone() for name, value in tensors.items()}}
    save_file(both, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFileError, match=r"LayerNorm.*must be in one file, but model.safetensors has it too"):
        read_network(tmp_path)


def test_an_export_of_a_classifier_is_a_base_for_more_training(tmp_path):
    write_folder(tmp_path / "theirs", "distilbert", "SequenceClassification")
    saccade.load(str(tmp_path / "theirs"), device="cpu").export(tmp_path / "ours")
    export(open_pretrained(str(tmp_path / "ours")), tmp_path / "again")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("ours", "again"))
    assert first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())
    shutil.rmtree(tmp_path / "again")
