"""Decoding: ours, transformers' generate, CTranslate2 and llama.cpp, each in a process of its own, in turn; tokens/s.

All generate greedily after prompts of 32 random tokens, with the same weights: the GPT-2 124M architecture with random
weights, or SmolLM2 of the catalogue. The limit is the bytes of the weights over the memory bandwidth, which is measured
in the same run. llama.cpp is included if SACCADE_LLAMA_PYTHON names an interpreter that has llama-cpp-python (it is
compiled for minutes); CTranslate2 where it is installed.

    python bench/decode.py [--rounds 5] [--shapes gpt2 smollm2] [--batches 1 16] [--tokens 64]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from interleaved import measure, processor, report, serve

PROMPT = 32
LLAMA_PYTHON = os.environ.get("SACCADE_LLAMA_PYTHON", "")
LLAMA_TYPES = {"llama_f32": "f32", "llama_q8_0": "q8_0", "llama_q4_k": "q4_k"}


def prompts(batch, vocabulary):
    """Return prompts of random tokens, all different."""
    import random

    generator = random.Random(1)
    return [[generator.randrange(100, vocabulary) for _ in range(PROMPT)] for _ in range(batch)]


def create(shape, folder):
    """Write the weights for every engine: a Hugging Face folder, and files of CTranslate2 and llama.cpp."""
    import torch

    import saccade

    source = folder / "hf"
    if shape == "gpt2":
        from tokenizers import Tokenizer
        from tokenizers.decoders import ByteLevel as ByteLevelDecoder
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import ByteLevel
        from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

        torch.manual_seed(1)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(source)
        letters = sorted(ByteLevel.alphabet())
        names = [*letters, *(a + b for a in letters for b in letters)][:50256]
        merges = [(name[0], name[1]) for name in names[len(letters) :]]
        tokenizer = Tokenizer(BPE({name: number for number, name in enumerate([*names, "<|endoftext|>"])}, merges))
        tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
        fast.save_pretrained(source)
    else:
        saccade.load("smollm2", device="cpu").export(source)
    model = saccade.load(str(source), device="cpu")
    model.export(folder / "ct2", format="ctranslate2")
    model.export(folder / "f32.gguf", format="gguf", dtype="f32")
    return source


def ours(folder, batch, tokens, dtype):
    import saccade
    from saccade.core.generation import TextRequest

    model = saccade.load(str(folder / "hf"), device="cpu", dtype=dtype)
    engine = model.engine(rows=batch)

    def work():
        for ids in prompts(batch, 40_000):
            engine.add(TextRequest(ids, max_new_tokens=tokens, temperature=0.0, ignore_eos=True))
        while len(engine):
            engine.step()
        # The next round must read its prompts too.
        for row in range(batch):
            engine.add(TextRequest([row], max_new_tokens=1, temperature=0.0, ignore_eos=True))
        while len(engine):
            engine.step()

    return work


def transformers(folder, batch, tokens, dtype):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "hf", dtype=torch.float32).eval()
    ids = torch.tensor(prompts(batch, 40_000))
    options = {"do_sample": False, "max_new_tokens": tokens, "min_new_tokens": tokens, "pad_token_id": 0}

    @torch.no_grad()
    def work():
        model.generate(ids, attention_mask=torch.ones_like(ids), **options)

    return work


def ctranslate2(folder, batch, tokens, dtype):
    from ctranslate2 import Generator
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "hf" / "tokenizer.json"))
    texts = [[tokenizer.id_to_token(number) for number in ids] for ids in prompts(batch, 40_000)]
    generator = Generator(str(folder / "ct2"), compute_type=dtype, intra_threads=2, inter_threads=1)
    options = {"max_length": tokens, "min_length": tokens, "sampling_topk": 1, "include_prompt_in_result": False}
    return lambda: generator.generate_batch(texts, max_batch_size=batch, **options)


def llama(folder, batch, tokens, dtype):
    """llama.cpp by its C interface: all sequences in one batch, greedy."""
    import ctypes

    import llama_cpp as library
    import numpy

    library.llama_backend_init()
    log = library.llama_log_callback(lambda *_: None)
    library.llama_log_set(log, None)
    path = str(folder / f"{dtype}.gguf").encode()
    model = library.llama_model_load_from_file(path, library.llama_model_default_params())
    parameters = library.llama_context_default_params()
    parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = batch * (PROMPT + tokens + 8), 2048, 512
    parameters.n_seq_max, parameters.n_threads, parameters.n_threads_batch = batch, 2, 2
    context = library.llama_init_from_model(model, parameters)
    vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    pieces = library.llama_batch_init(max(batch * PROMPT, batch), 0, batch)

    def decode(rows):
        pieces.n_tokens = len(rows)
        for at, (token, position, sequence, wanted) in enumerate(rows):
            pieces.token[at], pieces.pos[at], pieces.n_seq_id[at] = token, position, 1
            pieces.seq_id[at][0], pieces.logits[at] = sequence, wanted
        if library.llama_decode(context, pieces):
            raise SystemExit("llama.cpp could not decode")
        indices = [at for at, row in enumerate(rows) if row[3]]
        logits = (library.llama_get_logits_ith(context, at) for at in indices)
        return [int(numpy.ctypeslib.as_array(row, (vocabulary,)).argmax()) for row in logits]

    def work():
        library.llama_memory_clear(library.llama_get_memory(context), True)
        rows = [
            (token, at, sequence, at == PROMPT - 1)
            for sequence, ids in enumerate(prompts(batch, 40_000))
            for at, token in enumerate(ids)
        ]
        chosen = decode(rows)
        for step in range(tokens - 1):
            chosen = decode([(token, PROMPT + step, sequence, True) for sequence, token in enumerate(chosen)])

    assert ctypes and log  # the callback must stay alive
    return work


def quantize_llama(folder):
    """Write the 8- and 4-bit files of llama.cpp, by its own quantizer; runs in its interpreter."""
    import llama_cpp as library

    log = library.llama_log_callback(lambda *_: None)
    library.llama_log_set(log, None)
    kinds = {"q8_0": library.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_k": library.LLAMA_FTYPE_MOSTLY_Q4_K_M}
    for name, kind in kinds.items():
        parameters = library.llama_model_quantize_default_params()
        parameters.ftype = kind
        if library.llama_model_quantize(
            str(folder / "f32.gguf").encode(), str(folder / f"{name}.gguf").encode(), parameters
        ):
            raise SystemExit(f"llama.cpp could not write {name}")


def bandwidth(folder, batch, tokens, dtype):
    """Reads 1 GiB of memory."""
    import torch

    memory = torch.ones(1 << 28)
    return lambda: memory.sum()


CANDIDATES = {
    "ours_float32": (ours, "float32"),
    "ours_float16": (ours, "float16"),
    "ours_int8": (ours, "int8"),
    "ours_int4": (ours, "int4"),
    "transformers": (transformers, ""),
    "ctranslate2": (ctranslate2, "float32"),
    "ctranslate2_int8": (ctranslate2, "int8"),
    **{name: (llama, kind) for name, kind in LLAMA_TYPES.items()},
    "bandwidth": (bandwidth, ""),
}


def weight_bytes(folder, dtype):
    import saccade
    from saccade.decode.compiled.runner import CompiledModel

    return CompiledModel(saccade.load(str(folder / "hf"), device="cpu", dtype=dtype).task.model).nbytes


def compare(shape, batch, tokens, rounds, folder):
    """Measure all candidates and print the ratios to transformers, llama.cpp, CTranslate2 and the limit."""
    names = [name for name in CANDIDATES if LLAMA_PYTHON or not name.startswith("llama")]
    interpreters = [LLAMA_PYTHON if name.startswith("llama") else sys.executable for name in names]
    arguments = [["--worker", name, str(folder), str(batch), str(tokens)] for name in names]
    seconds = measure(__file__, arguments, rounds, interpreters=interpreters)
    times = dict(zip(names, seconds, strict=True))
    bytes_per_second = (1 << 30) / times.pop("bandwidth")
    speed = {name: batch * tokens / value for name, value in times.items()}
    print(json.dumps({"shape": shape, "batch": batch, "cpu": processor(), "GB/s": round(bytes_per_second / 1e9, 1)}))
    for mine in [name for name in speed if name.startswith("ours")]:
        limit = bytes_per_second / weight_bytes(folder, mine.removeprefix("ours_")) * batch
        report(f"decode_{shape}_{batch}_{mine}_limit", speed[mine], limit, unit="tokens/s")
        for peer in [name for name in speed if not name.startswith("ours")]:
            report(f"decode_{shape}_{batch}_{mine}_{peer}", speed[mine], speed[peer], unit="tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", nargs="*", choices=["gpt2", "smollm2"], default=["gpt2", "smollm2"])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--quantize", metavar="FOLDER")
    parser.add_argument("--worker", nargs=4, metavar=("CANDIDATE", "FOLDER", "BATCH", "TOKENS"))
    options = parser.parse_args()
    if options.quantize:
        quantize_llama(Path(options.quantize))
    elif options.worker:
        name, folder, batch, tokens = options.worker
        make, dtype = CANDIDATES[name]
        serve(make(Path(folder), int(batch), int(tokens), dtype))
    else:
        for shape in options.shapes:
            with tempfile.TemporaryDirectory() as temporary:
                create(shape, Path(temporary))
                if LLAMA_PYTHON:
                    subprocess.run([LLAMA_PYTHON, __file__, "--quantize", temporary], check=True)
                for batch in options.batches:
                    compare(shape, batch, options.tokens, options.rounds, Path(temporary))


if __name__ == "__main__":
    main()
