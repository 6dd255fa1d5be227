"""Transformer: equal to torch's own layers and stacks, in every norm order and activation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.masks import Causal, Full, Graph, Padding
from saccade.nn.transformer import Transformer, TransformerConfig

DIM, HEADS, HIDDEN, DEPTH, MEMORY = 12, 3, 20, 3, 4
KEEP = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])
MEMORY_KEEP = torch.tensor([[True, True, False, False], [True, True, True, True]])
AHEAD = torch.ones(5, 5, dtype=torch.bool).triu(1)
PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=["single", "double"]
)
ORDERS = pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "gelu"])


def make(activation, norm_first, depth, memory_dim=None):
    """Ours, in the shape of the 2017 paper, with gains and biases that are not 1 and 0."""
    config = TransformerConfig(
        dim=DIM,
        depth=depth,
        heads=HEADS,
        hidden=HIDDEN,
        activation=activation,
        norm="layer",
        norm_first=norm_first,
        position="none",
        score="scaled_dot",
        bias=True,
    )
    stack = Transformer(config, memory_dim)
    for parameter in stack.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.3)
    return stack


def names(memory):
    """Return the name in torch's layer of each of our parameters."""
    sublayers = ["self", "cross", "feed"] if memory else ["self", "feed"]
    table = {"self.qkv.": "self_attn.in_proj_", "self.out.": "self_attn.out_proj."}
    table |= {"feed.up.": "linear1.", "feed.down.": "linear2."}
    if memory:
        table["cross.out."] = "multihead_attn.out_proj."
    return table | {f"{part}_residual.norm.": f"norm{i}." for i, part in enumerate(sublayers, 1)}


def torch_layer_weights(layer):
    """The weights of one of our layers under the names of torch."""
    weights = {}
    for ours, theirs in names(layer.cross is not None).items():
        weights |= {theirs + p: layer.get_parameter(ours + p) for p in ("weight", "bias")}
    if layer.cross is not None:
        for part in ("weight", "bias"):
            joined = torch.cat([layer.cross.q.get_parameter(part), layer.cross.kv.get_parameter(part)])
            weights["multihead_attn.in_proj_" + part] = joined
    return weights


def torch_twin(stack, activation, norm_first, *, memory):
    kinds = (
        (nn.TransformerDecoderLayer, nn.TransformerDecoder)
        if memory
        else (
            nn.TransformerEncoderLayer,
            nn.TransformerEncoder,
        )
    )
    layer = kinds[0](DIM, HEADS, HIDDEN, 0.0, activation, batch_first=True, norm_first=norm_first)
    last = nn.LayerNorm(DIM) if norm_first else None
    quiet = {} if memory else {"enable_nested_tensor": False}
    twin = kinds[1](layer, stack.config.depth, norm=last, **quiet)
    for index, inner in enumerate(twin.layers):
        inner.load_state_dict(torch_layer_weights(stack.get_submodule(str(index))))
    if last is not None:
        twin.norm.load_state_dict(stack.norm.state_dict())
    return twin


def assert_equal_with_gradients(ours, theirs, inputs, tolerance, real):
    """Outputs at real tokens, and the gradients of all inputs, are the same."""
    results = []
    for function in (ours, theirs):
        given = [x.clone().requires_grad_() for x in inputs]
        y = function(*given)[real]
        direction = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        results.append((y, *torch.autograd.grad((y * direction).sum(), given)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


@PRECISIONS
@ORDERS
@ACTIVATIONS
@pytest.mark.parametrize("depth", [1, DEPTH], ids=["layer", "stack"])
def test_the_encoder_equals_torch(dtype, tolerance, norm_first, activation, depth):
    stack = make(activation, norm_first, depth)
    twin = torch_twin(stack, activation, norm_first, memory=False).to(dtype)
    stack = stack.to(dtype)
    x = torch.randn(2, 5, DIM, dtype=dtype)
    assert_equal_with_gradients(
        lambda x: stack(x, mask=Padding(KEEP)),
        lambda x: twin(x, src_key_padding_mask=~KEEP),
        [x],
        tolerance,
        KEEP,
    )


@PRECISIONS
@ORDERS
@ACTIVATIONS
@pytest.mark.parametrize("depth", [1, DEPTH], ids=["layer", "stack"])
def test_the_decoder_equals_torch(dtype, tolerance, norm_first, activation, depth):
    stack = make(activation, norm_first, depth, memory_dim=DIM)
    twin = torch_twin(stack, activation, norm_first, memory=True).to(dtype)
    stack = stack.to(dtype)
    x, memory = torch.randn(2, 5, DIM, dtype=dtype), torch.randn(2, MEMORY, DIM, dtype=dtype)
    assert_equal_with_gradients(
        lambda x, m: stack(x, m, mask=Causal() & Padding(KEEP), memory_mask=Padding(MEMORY_KEEP)),
        lambda x, m: twin(x, m, tgt_mask=AHEAD, tgt_key_padding_mask=~KEEP, memory_key_padding_mask=~MEMORY_KEEP),
        [x, memory],
        tolerance,
        KEEP,
    )


SHAPES = {
    "default": {},
    "gpt2": {"norm": "layer", "position": "learned", "score": "scaled_dot", "activation": "gelu_tanh", "bias": True},
    "llama": {"norm": "rms", "score": "scaled_dot", "activation": "swiglu", "kv_heads": 2},
    "published": {"norm": "layer", "norm_first": False, "position": "sinusoidal", "activation": "relu", "bias": True},
    "window": {"window": 3, "position": "none"},
}


def make_gpt(shape):
    model = GPT(GPTConfig(dim=16, depth=2, heads=4, hidden=24, max_positions=12, **SHAPES[shape]), vocabulary=11)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_a_later_token_changes_nothing_before_it(shape):
    model = make_gpt(shape)
    ids = torch.randint(11, (2, 8))
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1) % 11
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_gradient_comes_from_later_tokens(shape):
    model = make_gpt(shape).decoder
    x = torch.randn(2, 8, 16, requires_grad=True)
    for position in range(8):
        (gradient,) = torch.autograd.grad(model(x, mask=Causal())[:, position].pow(3).sum(), x)
        assert (gradient[:, position + 1 :] == 0).all()
        assert gradient[:, position].any()


def test_a_window_of_w_lets_each_layer_look_back_w_minus_one_tokens():
    model = make_gpt("window").decoder
    x = torch.randn(1, 8, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x, mask=Causal())[0, 7].pow(3).sum(), x)
    reached = gradient[0].abs().sum(-1) > 0
    assert reached.tolist() == [False] * 3 + [True] * 5  # 2 layers x 2 tokens back


@given(tokens=st.integers(1, 6), extra=st.integers(0, 4), shape=st.sampled_from(sorted(SHAPES)))
def test_padding_changes_nothing(tokens, extra, shape):
    model = make_gpt(shape).double().decoder
    x = torch.randn(1, tokens + extra, 16).double()
    keep = (torch.arange(tokens + extra) < tokens)[None]
    padded = model(x, mask=Padding(keep))
    garbage = torch.where(keep[..., None], x, 1e3 * torch.randn_like(x))
    assert torch.equal(model(garbage, mask=Padding(keep))[:, :tokens], padded[:, :tokens])
    torch.testing.assert_close(padded[:, :tokens], model(x[:, :tokens], mask=Full()), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_of_padding_only_is_finite_forward_and_backward(shape):
    model = make_gpt(shape).decoder
    x = torch.randn(2, 4, 16, requires_grad=True)
    y = model(x, mask=Padding(torch.tensor([[True] * 4, [False] * 4])))
    assert y.isfinite().all()
    gradients = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_stack_lowers_its_mask_once():
    class Counted(Graph):
        calls = 0

        def allow(self, query, key):
            Counted.calls += 1
            return super().allow(query, key)

    stack = make("relu", True, depth=DEPTH)
    stack(torch.randn(1, 5, DIM), mask=Counted(~AHEAD))
    assert Counted.calls == 1


@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_positions_are_added_before_the_first_layer(position):
    stack = Transformer(TransformerConfig(dim=16, depth=1, heads=2, hidden=16, position=position))
    bare = Transformer(TransformerConfig(dim=16, depth=1, heads=2, hidden=16, position="none"))
    bare.load_state_dict({k: v for k, v in stack.state_dict().items() if not k.startswith("position")})
    x = torch.randn(1, 5, 16)
    torch.testing.assert_close(stack(x), bare(x + stack.position(0, 5, x.device)))
    assert not torch.allclose(stack(x), bare(x))


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary"])
def test_half_precision_stays_half(position):
    stack = Transformer(TransformerConfig(dim=16, depth=1, heads=2, hidden=16, position=position)).half()
    assert stack(torch.randn(1, 5, 16).half()).dtype == torch.float16


def test_every_attention_is_named_by_layer_and_role():
    stack = make("relu", True, depth=2, memory_dim=7)
    attentions = [name for name, module in stack.named_modules() if hasattr(module, "weights")]
    assert attentions == ["0.self", "0.cross", "1.self", "1.cross"]


def test_a_config_whose_sizes_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="dim must be a multiple of heads, but 30 is not a multiple of 4"):
        TransformerConfig(dim=30, heads=4)
    with pytest.raises(ValueError, match="heads must be a multiple of kv_heads, but 4 is not a multiple of 3"):
        TransformerConfig(dim=32, heads=4, kv_heads=3)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kv_heads": -2}, "kv_heads must be at least 0, but is -2"),
        ({"rotary_base": 0.0}, "rotary_base must be above 1, but is 0.0"),
        ({"dim": 18, "heads": 2}, "dim / heads must be even for rotary positions, but is 9"),
        ({"dim": 9, "heads": 3, "position": "sinusoidal"}, "dim must be even for sinusoidal positions, but is 9"),
    ],
)
def test_an_invalid_config_is_refused(settings, says):
    with pytest.raises(ValueError, match=says):
        TransformerConfig(**settings)


@pytest.mark.parametrize("shape", [{}, {"activation": "gelu", "norm": "layer", "position": "learned"}])
def test_a_stack_compiles_to_one_graph_without_warnings(shape):
    """One graph, forward and backward; kernels and rotary positions are compiled as plain operations."""
    torch._dynamo.reset()
    stack = Transformer(TransformerConfig(dim=16, depth=2, heads=2, hidden=24, **shape))
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 5, 16)
    compiled = torch.compile(stack, backend="eager", fullgraph=True)
    results = []
    for run in (stack, compiled):
        stack.zero_grad()
        out = run(x, mask=Causal())
        out.square().sum().backward()
        results.append([out.detach(), *(parameter.grad.clone() for parameter in stack.parameters())])
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(other, plain, atol=1e-4, rtol=1e-4)
