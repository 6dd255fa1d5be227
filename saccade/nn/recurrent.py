"""Recurrent layers: a state carried from token to token (RNN, GRU, LSTM).

Shapes: B rows, T tokens, D input width, S state width.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

Cell = Literal["rnn", "gru", "lstm"]
State = tuple[Tensor, ...]
"""(h,) for RNN and GRU, (h, c) for LSTM; each (layers x directions, B, S)."""

_KERNELS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def _has_bfloat16() -> bool:
    """Whether oneDNN has recurrent kernels in bfloat16 for this processor; autocast does not ask."""
    return not torch.backends.mkldnn.is_available() or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class Recurrent(nn.Module):
    """RNN, GRU or LSTM: (y_t, s_t) = f(x_t, s_t-1).

    A full sequence runs through torch's fused kernel; `step` computes the same function token by token, for decoding.
    """

    def __init__(self, cell: Cell, dim: int, state_dim: int, *, depth: int = 1, bidirectional: bool = False) -> None:
        super().__init__()
        if cell not in _KERNELS:
            raise ValueError(f"cell must be one of {', '.join(_KERNELS)}, but is '{cell}'")
        self.cell, self.depth, self.bidirectional = cell, depth, bidirectional
        self.kernel = _KERNELS[cell](dim, state_dim, num_layers=depth, bidirectional=bidirectional, batch_first=True)

    def forward(self, x: Tensor, state: State | None = None, *, keep: Tensor | None = None) -> tuple[Tensor, State]:
        """Return outputs (B, T, S or 2S) of (B, T, D), 0 where `keep` is False, and the state after the last token."""
        first = None if state is None else state if self.cell == "lstm" else state[0]
        if keep is None:
            out, last = self._run(x, first)
        else:
            if (keep[:, 1:] & ~keep[:, :-1]).any():
                raise ValueError("padding must come after the real tokens of a row, but comes before one")
            length = keep.sum(1).clamp_min(1)  # a row of padding counts as one token, whose output is then set to zero
            packed = pack_padded_sequence(x, length.cpu(), batch_first=True, enforce_sorted=False)
            out, last = self._run(packed, first)
            out, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
            out = out * keep[..., None]
        return out, last if self.cell == "lstm" else (last,)

    def _run(self, x: Tensor | PackedSequence, first: Tensor | State | None) -> Any:
        """Run the fused kernel, in its own dtype where autocast would choose one that the processor does not have."""
        data = x if isinstance(x, Tensor) else x.data
        if data.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or _has_bfloat16():
            return self.kernel(x, first)
        dtype = next(self.kernel.parameters()).dtype
        if first is not None:
            first = first.to(dtype) if isinstance(first, Tensor) else tuple(part.to(dtype) for part in first)
        with torch.autocast("cpu", enabled=False):
            return self.kernel(x.to(dtype), first)

    def start(self, rows: int) -> State:
        """Return the initial state: zeros."""
        like = self.kernel.weight_hh_l0
        assert isinstance(like, Tensor)
        count = self.depth * (2 if self.bidirectional else 1)
        zeros = like.new_zeros(count, rows, like.shape[1])
        return (zeros, zeros) if self.cell == "lstm" else (zeros,)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Process one token x (B, D) per row; returns the output (B, S) and the next state."""
        if self.bidirectional:
            raise ValueError("a bidirectional recurrent layer cannot be stepped, as it needs the whole sequence")
        after: list[State] = []
        for layer in range(self.depth):
            names = (f"weight_ih_l{layer}", f"weight_hh_l{layer}", f"bias_ih_l{layer}", f"bias_hh_l{layer}")
            w_in, w_state, b_in, b_state = (getattr(self.kernel, name) for name in names)
            layer_state = tuple(part[layer] for part in state)
            after.append(
                CELLS[self.cell](F.linear(x, w_in, b_in), F.linear(layer_state[0], w_state, b_state), layer_state)
            )
            x = after[-1][0]
        return x, tuple(torch.stack(parts) for parts in zip(*after, strict=True))


def rnn_cell(new: Tensor, old: Tensor, state: State) -> State:
    """h' = tanh(Wx + Uh)."""
    return (torch.tanh(new + old),)


def gru_cell(new: Tensor, old: Tensor, state: State) -> State:
    """h' = (1 - z) n + z h, with reset gate r and update gate z (https://arxiv.org/abs/1406.1078)."""
    reset_new, update_new, value_new = new.chunk(3, -1)
    reset_old, update_old, value_old = old.chunk(3, -1)
    reset, update = torch.sigmoid(reset_new + reset_old), torch.sigmoid(update_new + update_old)
    value = torch.tanh(value_new + reset * value_old)
    return ((1 - update) * value + update * state[0],)


def lstm_cell(new: Tensor, old: Tensor, state: State) -> State:
    """c' = f c + i g, h' = o tanh(c') (Hochreiter and Schmidhuber, 1997)."""
    input_gate, forget_gate, value, output_gate = (new + old).chunk(4, -1)
    cell = torch.sigmoid(forget_gate) * state[1] + torch.sigmoid(input_gate) * torch.tanh(value)
    return torch.sigmoid(output_gate) * torch.tanh(cell), cell


CELLS = {"rnn": rnn_cell, "gru": gru_cell, "lstm": lstm_cell}
