"""Small stand-ins of the right form for data sets, tokenizers and configurations of `preview_reach`."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from array import array
from pathlib import Path

WORDS = [
    "the",
    "network",
    "side",
    "of",
    "training",
    "is",
    "where",
    "many",
    "ranks",
    "wait",
    "for",
    "one",
    "link",
    "and",
    "nobody",
    "knows",
    "which",
]
MODELS = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoConfig, PreTrainedTokenizerFast
for kind, special in (("gpt2", "<|endoftext|>"), ("bert", "[MASK]")):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    extra = [special, "[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    made.train([sys.argv[1] + "/text.txt"], trainers.BpeTrainer(special_tokens=extra, vocab_size=500))
    named = dict(eos_token=special)
    if kind == "bert":
        named = dict(mask_token=special, cls_token="[CLS]", sep_token="[SEP]")
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", **named).save_pretrained(sys.argv[1] + "/" + kind)
    of = {"gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM"}[kind]
    AutoConfig.for_model(kind, architectures=[of]).save_pretrained(sys.argv[1] + "/" + kind)
from PIL import Image
import os
for part in ("train", "val"):
    for label in "abcdef":
        os.makedirs(f"{sys.argv[1]}/images/{part}/{label}", exist_ok=True)
        for number in range(8):
            Image.new("RGB", (256, 256), (number, 99, 7)).save(f"{sys.argv[1]}/images/{part}/{label}/{number}.jpg")
            Image.new("RGB", (256, 256), (number, 99, 7)).save(f"{sys.argv[1]}/pets/{label}_{number}.jpg")
"""


def write(folder: Path, python: Path) -> None:
    """Write everything that is not there yet."""
    if (folder / "images").exists():
        return
    draw = random.Random(1)  # noqa: S311 - stand-ins
    for each in ("tokens", "wiki", "texts", "chat", "pets", "mnist/MNIST/raw"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    text = "\n".join(" ".join(draw.choices(WORDS, k=12)) for _ in range(4000)) + "\n"
    text += "O God, O God!\n"  # with which minGPT begins what it samples
    for path in ("text.txt", "texts/text.txt", "wiki/train.txt", "wiki/valid.txt", "wiki/test.txt"):
        (folder / path).write_text(text)
    tokens = array("H", (draw.randrange(50257) for _ in range(200_000)))
    for path in ("tokens/train.bin", "tokens/val.bin"):
        (folder / path).write_bytes(tokens.tobytes())
    (folder / "llmc.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + tokens.tobytes())
    rows = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}] * 64
    (folder / "chat" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "pairs.csv").write_text("sentence1,label\n" + "a b,0\nc d,1\n" * 50)
    for kind, count in (("train", 6000), ("t10k", 1000)):
        raw = folder / "mnist/MNIST/raw"
        (raw / f"{kind}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + bytes(784 * count))
        (raw / f"{kind}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + bytes(count))
    subprocess.run([str(python), "-c", MODELS, str(folder)], check=True)
