"""A tiny random Marian model as transformers saves it, with SentencePiece models trained on random words."""

import json
import random

import sentencepiece
import torch
import transformers


def write(folder):
    """Write a model to a folder."""
    rng = random.Random(4)
    for name, letters in (("source", "abcdeThcatsA12,.-"), ("target", "xyzuvwÜneñ5.-")):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 6))) for _ in range(300)]
        text = folder / f"{name}.txt"
        text.write_text("\n".join(" ".join(rng.choices(words, k=8)) for _ in range(400)))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / name), vocab_size=120, minloglevel=2, pad_id=-1
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    names = ("source", "target")
    models = [sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm")) for name in names]
    pieces = [model.id_to_piece(number) for model in models for number in range(model.get_piece_size())]
    pieces = [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
    tokens = dict.fromkeys(["</s>", "<unk>", *pieces, "<pad>"])
    (folder / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    pad = len(tokens) - 1
    config = transformers.MarianConfig(
        vocab_size=len(tokens),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=64,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    torch.manual_seed(6)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_positions" not in name:
                value.normal_(std=0.3)
    model.save_pretrained(folder)
