"""A tiny pix2tex with fixed weights and pictures; as a script: the numbers of the published packages for it.

Run once in an environment with pix2tex 0.1.4, timm 0.5.4 and x-transformers 0.15.0:
`python tests/pretrained/pix2tex_reference.py > tests/pretrained/pix2tex_reference.json`
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

CONFIG = {
    "model_type": "pix2tex",
    "num_tokens": 40,
    "dim": 32,
    "encoder_depth": 1,
    "num_layers": 2,
    "heads": 2,
    "backbone_layers": [1, 2, 1],
    "max_height": 64,
    "max_width": 96,
    "max_seq_len": 8,
}
SIZES = ((32, 32), (64, 32), (32, 96), (64, 96))
IDS = [[1, 7, 30, 12, 5, 39, 3, 8]]
LATEX = (
    r"\frac { - b \pm \sqrt { b ^ { 2 } - 4 a c } } { 2 a }",
    r"\operatorname* { m a x } _ { x \in \mathrm { d o m } } f ( x )",
    r"\mathrm { a b } \alpha x \ y \\ z \, 1 2",
    r"\left( \begin{array} { c c } { a } & { b } \end{array} \right) ^ { \prime \prime }",
)


def tensors(shapes):
    """Return weights by name, the same on every machine."""
    values = {}
    for number, name in enumerate(sorted(shapes)):
        generator = np.random.RandomState(number)  # whose numbers never change
        noise = generator.standard_normal(shapes[name]).astype(np.float32)
        is_norm = len(shapes[name]) == 1 and name.endswith("weight")
        values[name] = torch.from_numpy(1 + 0.1 * noise if is_norm else 0.2 * noise)
    return values


def pixels(height, width):
    """Return grey levels (H, W)."""
    return np.random.RandomState(height * width).randint(0, 256, (height, width)).astype(np.uint8)


def pictures():
    """Return pictures (H, W) of strokes: dark on bright and bright on dark, small, large, wide and high."""
    shapes = ((40, 90), (33, 65), (9, 300), (700, 50), (300, 1500), (500, 500), (64, 31), (10, 1400))
    for number, (height, width) in enumerate(shapes):
        generator = np.random.RandomState(number)
        background, ink = (230, 20) if number % 2 else (40, 200)
        picture = np.full((height, width), background, dtype=np.uint8)
        for _ in range(6):
            top, left = generator.randint(0, height), generator.randint(0, width)
            picture[top : top + generator.randint(2, 9), left : left + generator.randint(2, 40)] = ink
        noise = generator.randint(-15, 16, picture.shape)
        yield np.clip(picture.astype(np.int64) + noise, 0, 255).astype(np.uint8)


def summarize(vectors, logits):
    """Return a few numbers of the vectors (N, D) of an encoder, and of the logits (T, V) of a decoder."""
    parts = {"encoder": vectors[:, :3], "logits": logits[:, :12]}
    return {name: [round(value, 6) for value in part.flatten().tolist()] for name, part in parts.items()}


def digest(grey):
    """Return the shape and a hash of grey levels (H, W)."""
    return [*grey.shape, hashlib.sha256(np.ascontiguousarray(grey).tobytes()).hexdigest()[:16]]


def expected():
    """Return the numbers that tests compare with."""
    return json.loads(Path(__file__).with_suffix(".json").read_text())


def main():
    """Print the numbers of the published packages."""
    from munch import Munch
    from PIL import Image
    from pix2tex.cli import minmax_size
    from pix2tex.models.hybrid import get_encoder
    from pix2tex.models.transformer import get_decoder
    from pix2tex.utils.utils import pad, post_process

    flags = {"attn_on_attn": True, "cross_attend": True, "ff_glu": True, "rel_pos_bias": False, "use_scalenorm": False}
    settings = Munch(**CONFIG, channels=1, patch_size=16, pad_token=0, decoder_args=flags)
    model = torch.nn.ModuleDict({"encoder": get_encoder(settings), "decoder": get_decoder(settings)}).eval()
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict(tensors(shapes))
    outputs = {}
    for height, width in SIZES:
        grey = torch.from_numpy(pixels(height, width)).float()
        with torch.no_grad():
            vectors = model["encoder"](((grey / 255 - 0.7931) / 0.1738)[None, None])
            logits = model["decoder"].net(torch.tensor(IDS), context=vectors)
        outputs[f"{height} x {width}"] = summarize(vectors[0], logits[0])
    read = [np.array(pad(minmax_size(pad(Image.fromarray(grey)), (672, 192), (32, 32)))) for grey in pictures()]
    texts = [post_process(text) for text in LATEX]
    print(json.dumps({"shapes": shapes, "outputs": outputs, "pictures": list(map(digest, read)), "texts": texts}))


if __name__ == "__main__":
    main()
