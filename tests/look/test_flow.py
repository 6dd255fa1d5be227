"""The flow of one token: its parts sum to the residual stream in every architecture, and reading changes nothing."""

import pytest
import torch

from saccade.errors import UsageError
from saccade.look.flow import flow_stacks, token_flow
from saccade.model import Model
from saccade.tasks import image_classification, masked_language_model, sentence_vectors, tagging
from saccade.tasks import language_model as language_models
from tests.pretrained import tiny_models

PROMPT = "The night was dark and the ship was lost."


def language_model(name):
    return Model(language_models.Task.from_pretrained(tiny_models.language_model(name)))


def check(flow):
    """Every stage is the sum of its parts, and the next one begins with it."""
    assert flow.error < 1e-5
    stream = flow.embedding if flow.added is None else flow.embedding + flow.added
    for part in flow.sub_layers:
        torch.testing.assert_close(part.x, stream)
        if part.attended is not None:
            total = part.attended.sources.sum(0) + part.attended.others + part.attended.constant
            torch.testing.assert_close(total, part.update, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(part.attended.heads.sum(0) + part.attended.constant, part.update)
        if part.pre_norm:
            torch.testing.assert_close(part.total, part.result)
        stream = part.result


@pytest.mark.parametrize("name", tiny_models.GPTS)
def test_language_models(name):
    model = language_model(name)
    answer = model(PROMPT, max_new_tokens=0)
    assert flow_stacks(answer, model.task) == ["decoder"]
    count = len(answer.attention["decoder.0.self"].queries)
    flow = token_flow(model.task, answer, "decoder", count - 1)
    check(flow)
    depth = len(answer.attention)
    kinds = [part.name for part in flow.sub_layers]
    assert kinds == [f"decoder.{layer}.{kind}" for layer in range(depth) for kind in ("self", "feed")]
    assert all(part.attended is not None and part.pre_norm for part in flow.sub_layers[::2])
    assert (flow.added is not None) == (name == "gpt2")
    (label, probability), *_ = flow.lens[-1][1]
    assert [layer for layer, _ in flow.lens] == ["embedding", *(f"decoder.{layer}" for layer in range(depth))]
    assert answer.scores[label] == pytest.approx(probability, rel=1e-4), "the last layer predicts what the model does"


def test_a_post_norm_encoder_of_three_embeddings():
    model = Model(masked_language_model.Task.from_pretrained(tiny_models.encoder("masked_language_model")))
    answer = model("the [MASK] was lost")
    flow = token_flow(model.task, answer, "bert.encoder", 2)
    check(flow)
    assert list(flow.parts) == ["token embedding", "position", "segment"]
    assert not any(part.pre_norm for part in flow.sub_layers)
    norm = model.task.model.bert.encoder.get_submodule("1.feed_residual").norm
    torch.testing.assert_close(norm(flow.sub_layers[-1].total), flow.sub_layers[-1].result)
    torch.testing.assert_close(flow.sub_layers[-1].result, flow.output)
    assert len(flow.lens) == 3 and all(len(top) == 5 for _, top in flow.lens)


def test_each_text_of_a_pair_is_read_in_its_own_call_and_has_no_output_layer():
    model = Model(sentence_vectors.Task.from_pretrained(tiny_models.encoder("masked_language_model")))
    answer = model(first="the night was dark", second="the ship")
    count = len(answer.attention["bert.encoder.0.self"].queries)
    flow = token_flow(model.task, answer, "bert.encoder", count - 1)
    check(flow)
    assert flow.lens is None
    vectors = model.task.model.bert(torch.tensor([answer.trace[0].ids]))[0]
    torch.testing.assert_close(flow.output, vectors[count - 1])


def test_patches_of_an_image_and_tags():
    model = Model(image_classification.Task.from_pretrained(tiny_models.image_classifier()))
    answer = model(torch.randint(0, 255, (24, 24, 3), dtype=torch.uint8).numpy(), attention=True)
    (stack,) = flow_stacks(answer, model.task)
    check(token_flow(model.task, answer, stack, 4))
    tagger = Model(tagging.Task.from_pretrained(tiny_models.encoder("tagging")))
    flow = token_flow(tagger.task, tagger("the ship was lost"), "bert.encoder", 1)
    check(flow)
    assert {label for _, top in flow.lens for label, _ in top} == {"no", "maybe", "yes"}


def test_what_is_no_stream_or_no_token_is_named():
    model = language_model("llama")
    answer = model(PROMPT, max_new_tokens=0)
    with pytest.raises(UsageError, match=r"no residual stream 'encoder'.*there are: decoder"):
        token_flow(model.task, answer, "encoder", 0)
    with pytest.raises(UsageError, match=r"position must be 0 to [0-9]+ in 'decoder', but is 500"):
        token_flow(model.task, answer, "decoder", 500)


def test_parts_that_do_not_sum_are_refused_by_name(monkeypatch):
    model = language_model("llama")
    answer = model(PROMPT, max_new_tokens=0)
    layer = model.task.model.decoder.get_submodule("1")
    inner = layer.forward
    monkeypatch.setattr(layer, "forward", lambda x, *rest: inner(1.5 * x, *rest))
    with pytest.raises(UsageError, match=r"the residual stream before 'decoder\.1\.self' is not the sum of its parts"):
        token_flow(model.task, answer, "decoder", 2)


def test_reading_leaves_the_model_as_it_was():
    model = language_model("gemma3")
    answer = model(PROMPT, max_new_tokens=0)
    before = {name: value.clone() for name, value in model.task.model.state_dict().items()}
    token_flow(model.task, answer, "decoder", 3)
    assert all(torch.equal(value, before[name]) for name, value in model.task.model.state_dict().items())
    modules = list(model.task.model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    assert dict(model(PROMPT, max_new_tokens=0).scores) == dict(answer.scores)
