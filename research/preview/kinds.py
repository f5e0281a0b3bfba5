"""One training script of each of many kinds on one GPU: `python research/preview/kinds.py NAME`.

Branches of several resolutions, self-distillation, vocoders, contexts of 32k tokens, experts with a capacity,
sequences of purchases, molecules, rewards, rectified flow, derivatives of networks; optimizers that the other scripts
lack. Each was predicted once, before its kernels had been seen, and then measured once (`real.py`).
"""

# mypy: ignore-errors
# ruff: noqa: E731 - small pieces of models are named where they are used
from __future__ import annotations

import copy
import itertools
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from loop import classified, forever, language, pictures, script, trained, words
from zoo import resnet

# ---- pictures


@script
def branches_fp16_last():
    """HRNet: three resolutions side by side that exchange features."""
    conv = lambda a, b, k=3, s=1: nn.Sequential(
        nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)
    )

    class Exchange(nn.Module):
        def __init__(self, widths=(48, 96, 192)):
            super().__init__()
            self.own = nn.ModuleList(nn.Sequential(*(conv(w, w) for _ in range(4))) for w in widths)
            self.mix = nn.ModuleList(
                nn.ModuleList(
                    conv(a, b, 1)
                    if m >= n
                    else nn.Sequential(*(conv(a if q == m else b, b, 3, 2) for q in range(m, n)))
                    for m, a in enumerate(widths)
                )
                for n, b in enumerate(widths)
            )

        def forward(self, each):
            each = [own(x) for own, x in zip(self.own, each, strict=True)]
            outs = []
            for n, row in enumerate(self.mix):
                total = each[n]
                for m, layer in enumerate(row):
                    if m != n:
                        y = layer(each[m])
                        total = total + (F.interpolate(y, scale_factor=2 ** (m - n), mode="nearest") if m > n else y)
                outs.append(F.relu(total))
            return outs

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(conv(3, 64, 3, 2), conv(64, 48, 3, 2))
            self.fall = nn.ModuleList([conv(48, 96, 3, 2), conv(96, 192, 3, 2)])
            self.body, self.head = nn.ModuleList(Exchange() for _ in range(4)), nn.Conv2d(336, 19, 1)

        def forward(self, x):
            each = [self.stem(x)]
            for fall in self.fall:
                each.append(fall(each[-1]))
            for block in self.body:
                each = block(each)
            size = each[0].shape[-2:]
            wide = [each[0], *(F.interpolate(y, size, mode="bilinear", align_corners=False) for y in each[1:])]
            return F.interpolate(self.head(torch.cat(wide, 1)), x.shape[-2:], mode="bilinear", align_corners=False)

    model = Net().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(12, 3, 384, 768, device="cuda").to(memory_format=torch.channels_last)
    batch = images, torch.randint(0, 19, (12, 384, 768), device="cuda")
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    return trained(model, batch, classified, amp=torch.float16, scaler=True, optimizer=sgd)


@script
def convnext2_tf32():
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    torch.backends.cuda.matmul.allow_tf32 = True
    model = ConvNextV2ForImageClassification(ConvNextV2Config(num_labels=1000)).cuda()
    nadam = torch.optim.NAdam(model.parameters(), lr=1e-3)
    return trained(model, pictures(64, 224), lambda m, b: m(pixel_values=b[0], labels=b[1]).loss, optimizer=nadam)


@script
def beit_bf16():
    from transformers import BeitConfig, BeitForImageClassification

    model = BeitForImageClassification(BeitConfig(num_labels=1000, use_relative_position_bias=True)).cuda()
    loss = lambda m, b: m(pixel_values=b[0], labels=b[1]).loss
    return trained(model, pictures(96, 224), loss, amp=torch.bfloat16, clip=3.0)


@script
def selfdistilled_bf16():
    """DINO: two large and four small views, a teacher that is an average, a centre."""
    from transformers import Dinov2Config, Dinov2Model

    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Dinov2Model(Dinov2Config(hidden_size=384, num_attention_heads=6, num_hidden_layers=12))
            self.head = nn.Sequential(nn.Linear(384, 2048), nn.GELU(), nn.Linear(2048, 256), nn.Linear(256, 16384))

        def forward(self, x):
            return self.head(self.body(pixel_values=x).last_hidden_state[:, 0])

    student = Student().cuda()
    teacher, centre = copy.deepcopy(student).requires_grad_(False), torch.zeros(16384, device="cuda")
    large, small = torch.randn(64, 3, 224, 224, device="cuda"), torch.randn(128, 3, 98, 98, device="cuda")
    adam = torch.optim.AdamW(student.parameters(), lr=5e-4, weight_decay=0.04)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.no_grad():
                seen = teacher(large).float()
                aim = ((seen - centre) / 0.04).softmax(-1).chunk(2)
            outs = [*student(large).chunk(2), *student(small).chunk(4)]
            loss = sum(
                -(a * (out.float() / 0.1).log_softmax(-1)).sum(-1).mean()
                for n, a in enumerate(aim) for m, out in enumerate(outs) if n != m
            )  # fmt: skip
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            centre.lerp_(seen.mean(0), 0.1)
            for kept, new in zip(teacher.parameters(), student.parameters(), strict=True):
                kept.mul_(0.996).add_(new, alpha=0.004)

    return step


@script
def timesformer_bf16():
    from transformers import TimesformerConfig, TimesformerForVideoClassification

    model = TimesformerForVideoClassification(TimesformerConfig(num_labels=400, num_hidden_layers=8)).cuda()
    batch = torch.randn(8, 8, 3, 224, 224, device="cuda"), torch.randint(0, 400, (8,), device="cuda")
    sgd = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)
    return trained(model, batch, lambda m, b: m(b[0], labels=b[1]).loss, amp=torch.bfloat16, optimizer=sgd)


# ---- sound


@script
def connectionist_bf16():
    """Spectra, two strided convolutions, an encoder, CTC over padded utterances."""

    class Listener(nn.Module):
        def __init__(self, wide=512):
            super().__init__()
            self.cut = nn.Sequential(
                nn.Conv2d(1, wide // 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(wide // 4, wide // 4, 3, 2, 1), nn.ReLU()
            )
            one = nn.TransformerEncoderLayer(wide, 8, 2048, 0.1, batch_first=True, norm_first=True)
            self.into, self.body = nn.Linear(wide // 4 * 20, wide), nn.TransformerEncoder(one, 12)
            self.head = nn.Linear(wide, 1024)

        def forward(self, x, padded):
            x = self.cut(x[:, None]).transpose(1, 2).flatten(2)
            return self.head(self.body(self.into(x), src_key_padding_mask=padded))

    sound = torch.randn(24, 1200, 80, device="cuda")
    padded = torch.arange(300, device="cuda")[None] >= torch.linspace(220, 300, 24, device="cuda").long()[:, None]
    text = torch.randint(1, 1024, (24, 60), device="cuda")
    heard, said = torch.linspace(220, 300, 24).long(), torch.full((24,), 60)

    def loss(model, _):
        out = model(sound, padded).float().log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(out, text, heard, said, zero_infinity=True)

    return trained(Listener().cuda(), None, loss, amp=torch.bfloat16, clip=5.0)


@script
def encodec_fp32():
    from transformers import EncodecConfig, EncodecModel

    model = EncodecModel(EncodecConfig(target_bandwidths=[6.0])).cuda()
    sound = torch.randn(12, 1, 24000, device="cuda")

    def loss(model, sound):
        out = model.decoder(model.encoder(sound))
        return F.l1_loss(out[..., : sound.shape[-1]], sound)

    return trained(model, sound, loss, optimizer=torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.5, 0.9)))


@script
def vocoder_tf32():
    """HiFi-GAN: transposed convolutions with dilated residuals, judged by periods."""
    torch.backends.cuda.matmul.allow_tf32 = True
    norm = torch.nn.utils.parametrizations.weight_norm

    class Residual(nn.Module):
        def __init__(self, wide, kernel):
            super().__init__()
            self.convs = nn.ModuleList(
                norm(nn.Conv1d(wide, wide, kernel, padding=d * (kernel // 2), dilation=d)) for d in (1, 3, 5)
            )

        def forward(self, x):
            for conv in self.convs:
                x = x + conv(F.leaky_relu(x, 0.1))
            return x

    class Makes(nn.Module):
        def __init__(self, wide=256):
            super().__init__()
            self.first, self.last = nn.Conv1d(80, wide, 7, padding=3), nn.Conv1d(wide // 16, 1, 7, padding=3)
            sizes = [wide >> n for n in range(5)]
            self.up = nn.ModuleList(
                norm(nn.ConvTranspose1d(a, b, 2 * r, r, r // 2))
                for a, b, r in zip(sizes[:-1], sizes[1:], (8, 8, 2, 2), strict=True)
            )
            self.body = nn.ModuleList(nn.ModuleList(Residual(s, k) for k in (3, 7, 11)) for s in sizes[1:])

        def forward(self, x):
            x = self.first(x)
            for up, body in zip(self.up, self.body, strict=True):
                x = up(F.leaky_relu(x, 0.1))
                x = sum(each(x) for each in body) / 3
            return torch.tanh(self.last(F.leaky_relu(x)))

    class Judges(nn.Module):
        def __init__(self, period):
            super().__init__()
            self.period, sizes = period, (1, 32, 128, 512, 512)
            self.body = nn.ModuleList(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in itertools.pairwise(sizes))
            self.last = nn.Conv2d(512, 1, (3, 1), 1, (1, 0))

        def forward(self, x):
            x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect").unflatten(-1, (-1, self.period))
            for conv in self.body:
                x = F.leaky_relu(conv(x), 0.1)
            return self.last(x)

    makes, judges = Makes().cuda(), nn.ModuleList(Judges(p) for p in (2, 3, 5, 7, 11)).cuda()
    both = torch.optim.AdamW([*makes.parameters(), *judges.parameters()], lr=2e-4, betas=(0.8, 0.99))
    mel, real = torch.randn(16, 80, 32, device="cuda"), torch.randn(16, 1, 8192, device="cuda")

    def step():
        fake, loss = makes(mel), 0.0
        for judge in judges:
            true, false, fooled = judge(real), judge(fake.detach()), judge(fake)
            loss = loss + (1 - true).square().mean() + false.square().mean() + (1 - fooled).square().mean()
        (loss + 45 * F.l1_loss(fake, real)).backward()
        both.step()
        both.zero_grad(set_to_none=True)

    return step


# ---- language


@script
def mistral_checkpointed_bf16():
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=10, num_attention_heads=32,
        num_key_value_heads=8, sliding_window=4096,
    )  # fmt: skip
    with torch.device("cuda"):
        model = MistralForCausalLM(config).to(torch.bfloat16)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    fused = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    return trained(model, words(32000, 2, 4096), language, optimizer=fused, clip=1.0)


@script
def gpt2_adafactor_bf16():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=12, n_head=16)).cuda()
    factored = torch.optim.Adafactor(model.parameters(), lr=1e-2)
    return trained(model, words(50257, 8, 1024), language, amp=torch.bfloat16, optimizer=factored)


@script
def marian_fp16():
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=32000, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, pad_token_id=0,
        decoder_start_token_id=0, eos_token_id=1, forced_eos_token_id=1,
    )  # fmt: skip
    source, target = words(32000, 96, 96), words(32000, 96, 96)
    there = (torch.arange(96, device="cuda")[None] < torch.randint(48, 97, (96, 1), device="cuda")).long()
    loss = lambda m, _: m(input_ids=source, attention_mask=there, labels=target).loss
    return trained(MarianMTModel(config).cuda(), None, loss, amp=torch.float16, scaler=True, clip=1.0)


@script
def long_llama_bf16():
    """32k tokens, one sequence: blocks recomputed, the loss in pieces."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=4, num_attention_heads=16,
        num_key_value_heads=4, max_position_embeddings=32768,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16).cuda()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    tokens = words(64000, 1, 32768)
    piece = lambda x, y: F.cross_entropy(model.lm_head(x).float(), y, reduction="sum")

    def loss(model, tokens):
        x, aim = model.model(input_ids=tokens).last_hidden_state[0], tokens[0].roll(-1)
        pairs = zip(x.split(4096), aim.split(4096), strict=True)
        return sum(checkpoint(piece, a, b, use_reentrant=False) for a, b in pairs) / 32768

    return trained(model, tokens, loss, clip=1.0)


@script
def granite_experts_bf16():
    from transformers import GraniteMoeConfig, GraniteMoeForCausalLM

    config = GraniteMoeConfig(
        vocab_size=49152, hidden_size=1024, intermediate_size=512, num_hidden_layers=10, num_attention_heads=16,
        num_key_value_heads=8, num_local_experts=32, num_experts_per_tok=8,
    )  # fmt: skip
    model = GraniteMoeForCausalLM(config).cuda().to(torch.bfloat16)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(49152, 4, 1024), language, optimizer=fused, clip=1.0)


@script
def switched_bf16():
    """Experts with a capacity: tokens are sent and joined by products with one-hot masks."""

    class Switch(nn.Module):
        def __init__(self, wide=768, experts=16, group=1024):
            super().__init__()
            self.route, self.group, self.room = nn.Linear(wide, experts, bias=False), group, 2 * group // experts
            self.up = nn.Parameter(0.02 * torch.randn(experts, wide, 3072))
            self.down = nn.Parameter(0.02 * torch.randn(experts, 3072, wide))

        def forward(self, x):
            b, t, c = x.shape
            x = x.reshape(-1, self.group, c)
            chance = self.route(x).float().softmax(-1)
            best, which = chance.max(-1)
            mask = F.one_hot(which, chance.shape[-1])
            place = (mask.cumsum(1) - 1) * mask
            kept = mask * (place < self.room)
            send = (kept[..., None] * F.one_hot((place * kept).sum(-1), self.room)[:, :, None]).to(x.dtype)
            inside = torch.einsum("gsec,gsm->egcm", send, x)
            inside = F.gelu(torch.einsum("egcm,emh->egch", inside, self.up))
            inside = torch.einsum("egch,ehm->egcm", inside, self.down)
            out = torch.einsum("gsec,egcm->gsm", send * best[..., None, None].to(x.dtype), inside)
            self.balance = chance.shape[-1] * (mask.float().mean((0, 1)) * chance.mean((0, 1))).sum()
            return out.reshape(b, t, c)

    class Block(nn.Module):
        def __init__(self, wide=768, heads=12):
            super().__init__()
            self.norms, self.heads = nn.ModuleList(nn.LayerNorm(wide) for _ in range(2)), heads
            self.qkv, self.out, self.mlp = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide), Switch(wide)

        def forward(self, x):
            q, k, v = (
                y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.norms[0](x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).flatten(2))
            return x + self.mlp(self.norms[1](x))

    class Net(nn.Module):
        def __init__(self, vocab=32000, wide=768):
            super().__init__()
            self.words, self.blocks = nn.Embedding(vocab, wide), nn.ModuleList(Block(wide) for _ in range(6))
            self.norm, self.head = nn.LayerNorm(wide), nn.Linear(wide, vocab, bias=False)

        def forward(self, tokens):
            x = self.words(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    def loss(model, tokens):
        out = F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        return out + 0.01 * sum(block.mlp.balance for block in model.blocks)

    return trained(Net().cuda(), words(32000, 8, 1024), loss, amp=torch.bfloat16)


@script
def minilm_fp32():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=2
    )
    batch = words(30000, 32, 128), torch.ones(32, 128, dtype=torch.int64, device="cuda"), words(2, 32, 1).flatten()
    model = BertForSequenceClassification(config).cuda()
    loss = lambda m, b: m(input_ids=b[0], attention_mask=b[1], labels=b[2]).loss
    return trained(model, batch, loss, clip=1.0)


@script
def grouped_rewards_bf16():
    """GRPO: answers scored within their group, a frozen reference, ratios that are clipped."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=16, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    policy = Qwen2ForCausalLM(config).cuda().to(torch.bfloat16)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    tokens, reward = words(151936, 8, 512), torch.randn(8, device="cuda")
    gain = ((reward - reward.mean()) / (reward.std() + 1e-4))[:, None]

    def likely(model):
        logits = model(input_ids=tokens).logits[:, :-1]
        picked = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1).float()
        return picked - torch.stack([row.float().logsumexp(-1) for row in logits])

    def loss(model, _):
        with torch.no_grad():
            held = likely(reference)
        now = likely(model)
        ratio = (now - now.detach()).exp()
        better = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
        apart = (held - now).exp() - (held - now) - 1
        return -(better - 0.04 * apart).mean()

    return trained(policy, None, loss, clip=1.0)


# ---- compiled


@script
def resnet_compiled_fp16_last():
    model = resnet((3, 4, 6, 3)).cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    batch = pictures(128, 192, last=True)
    return trained(torch.compile(model), batch, classified, amp=torch.float16, scaler=True, optimizer=sgd)


@script
def rotary_compiled_bf16():
    """A plain modern decoder: RMS norms, rotary places, gated layers, heads that share keys."""

    class Block(nn.Module):
        def __init__(self, wide=1536, heads=12, shared=4, hidden=4096):
            super().__init__()
            self.heads, self.shared, each = heads, shared, wide // heads
            self.norms = nn.ModuleList(nn.RMSNorm(wide) for _ in range(2))
            self.q, self.kv = nn.Linear(wide, wide, bias=False), nn.Linear(wide, 2 * shared * each, bias=False)
            self.out, self.gate = nn.Linear(wide, wide, bias=False), nn.Linear(wide, 2 * hidden, bias=False)
            self.down = nn.Linear(hidden, wide, bias=False)

        def turned(self, x, cos, sin):
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        def forward(self, x, cos, sin):
            b, t, c = x.shape
            y = self.norms[0](x)
            q = self.turned(self.q(y).view(b, t, self.heads, -1).transpose(1, 2), cos, sin)
            k, v = self.kv(y).view(b, t, 2, self.shared, -1).permute(2, 0, 3, 1, 4)
            k = self.turned(k, cos, sin).to(v.dtype)
            y = F.scaled_dot_product_attention(q.to(v.dtype), k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            up, gate = self.gate(self.norms[1](x)).chunk(2, -1)
            return x + self.down(up * F.silu(gate))

    class Net(nn.Module):
        def __init__(self, vocab=50304, wide=1536, length=2048):
            super().__init__()
            self.words, self.blocks = nn.Embedding(vocab, wide), nn.ModuleList(Block(wide) for _ in range(10))
            self.norm, self.head = nn.RMSNorm(wide), nn.Linear(wide, vocab, bias=False)
            angle = torch.outer(torch.arange(length), 10000.0 ** -torch.linspace(0, 1, 64))
            self.register_buffer("cos", angle.cos())
            self.register_buffer("sin", angle.sin())

        def forward(self, tokens):
            x = self.words(tokens)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), tokens.roll(-1, 1).flatten())

    model = Net().cuda()
    fused = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    loss = lambda m, b: m(b)
    return trained(torch.compile(model), words(50304, 6, 2048), loss, amp=torch.bfloat16, optimizer=fused, clip=1.0)


# ---- purchases, molecules, rewards, noise, derivatives


@script
def purchases_fp32():
    """SASRec: what somebody buys next, one drawn item that is not."""

    class Next(nn.Module):
        def __init__(self, items=300_000, wide=128, length=200):
            super().__init__()
            self.items, self.places = nn.Embedding(items, wide, padding_idx=0), nn.Embedding(length, wide)
            self.attend = nn.ModuleList(nn.MultiheadAttention(wide, 2, 0.2, batch_first=True) for _ in range(2))
            self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(5))
            feed = lambda: nn.Sequential(
                nn.Conv1d(wide, wide, 1), nn.Dropout(0.2), nn.ReLU(), nn.Conv1d(wide, wide, 1), nn.Dropout(0.2)
            )
            self.feed, self.lose = nn.ModuleList(feed() for _ in range(2)), nn.Dropout(0.2)
            self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

        def forward(self, seen, bought, other):
            x = self.lose(self.items(seen) * math.sqrt(128) + self.places.weight)
            for n, (attend, feed) in enumerate(zip(self.attend, self.feed, strict=True)):
                y = self.norms[2 * n](x)
                x = y + attend(y, x, x, attn_mask=self.later, need_weights=False)[0]
                x = self.norms[2 * n + 1](x)
                x = x + feed(x.transpose(1, 2)).transpose(1, 2)
            x = self.norms[4](x)
            return (x * self.items(bought)).sum(-1), (x * self.items(other)).sum(-1)

    batch = tuple(torch.randint(1, 300_000, (128, 200), device="cuda") for _ in range(3))

    def loss(model, batch):
        yes, no = model(*batch)
        one = F.binary_cross_entropy_with_logits(yes, torch.ones_like(yes))
        return one + F.binary_cross_entropy_with_logits(no, torch.zeros_like(no))

    model = Next().cuda()
    return trained(model, batch, loss, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98)))


@script
def crossed_bf16():
    """DCN-V2: explicit crosses of features beside deep layers."""

    class Crossed(nn.Module):
        def __init__(self, kinds=26, rows=50_000, each=32):
            super().__init__()
            wide = 13 + kinds * each
            self.table = nn.Embedding(kinds * rows, each)
            self.register_buffer("from_row", torch.arange(kinds) * rows)
            self.cross = nn.ModuleList(nn.Linear(wide, wide) for _ in range(3))
            self.deep = nn.Sequential(nn.Linear(wide, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU())
            self.last = nn.Linear(wide + 512, 1)

        def forward(self, numbers, kinds):
            first = x = torch.cat([numbers, self.table(kinds + self.from_row).flatten(1)], 1)
            for layer in self.cross:
                x = first * layer(x) + x
            return self.last(torch.cat([x, self.deep(first)], 1)).squeeze(-1)

    model = Crossed().cuda()
    batch = torch.randn(16384, 13, device="cuda"), torch.randint(0, 50_000, (16384, 26), device="cuda")
    aim = torch.rand(16384, device="cuda").round()
    loss = lambda m, b: F.binary_cross_entropy_with_logits(m(*b).float(), aim)
    adamax = torch.optim.Adamax(model.parameters(), lr=1e-3)
    return trained(model, batch, loss, amp=torch.bfloat16, optimizer=adamax)


@script
def molecules_fp32():
    """An equivariant network: messages by distances, places that move."""

    class Layer(nn.Module):
        def __init__(self, wide=128):
            super().__init__()
            two = lambda a, b: nn.Sequential(nn.Linear(a, wide), nn.SiLU(), nn.Linear(wide, b))
            self.send, self.move, self.take = two(2 * wide + 1, wide), two(wide, 1), two(2 * wide, wide)

        def forward(self, x, place, source, target):
            apart = place[source] - place[target]
            far = apart.square().sum(-1, keepdim=True)
            said = F.silu(self.send(torch.cat([x[source], x[target], far], -1)))
            place = place.index_add(0, target, apart / (far.sqrt() + 1) * self.move(said))
            heard = torch.zeros_like(x).index_add(0, target, said)
            return x + self.take(torch.cat([x, heard], -1)), place

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.kind, self.layers = nn.Embedding(10, 128), nn.ModuleList(Layer() for _ in range(7))
            self.head = nn.Sequential(nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1))

        def forward(self, kind, place, source, target, of):
            x = self.kind(kind)
            for layer in self.layers:
                x, place = layer(x, place, source, target)
            total = torch.zeros(96, 128, device=x.device).index_add(0, of, x)
            return self.head(total).squeeze(-1)

    count, each = 96, 18
    start = torch.arange(count, device="cuda").repeat_interleave(each * (each - 1)) * each
    pair = torch.cartesian_prod(torch.arange(each), torch.arange(each))
    pair = pair[pair[:, 0] != pair[:, 1]].to("cuda").repeat(count, 1)
    kind, place = torch.randint(0, 10, (count * each,), device="cuda"), torch.randn(count * each, 3, device="cuda")
    batch = (
        kind,
        place,
        start + pair[:, 0],
        start + pair[:, 1],
        torch.arange(count, device="cuda").repeat_interleave(each),
    )
    aim = torch.randn(count, device="cuda")
    return trained(Net().cuda(), batch, lambda m, b: F.l1_loss(m(*b), aim))


@script
def valued_fp32():
    """DQN on frames: a network that lags behind, drawn transitions from a kept buffer."""
    body = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18),
    ).cuda()  # fmt: skip
    lags = copy.deepcopy(body).requires_grad_(False)
    kept = torch.randint(0, 256, (20_000, 4, 84, 84), dtype=torch.uint8, device="cuda")
    done, gain = torch.randint(0, 18, (20_000,), device="cuda"), torch.randn(20_000, device="cuda")
    rms = torch.optim.RMSprop(body.parameters(), lr=2.5e-4, alpha=0.95, eps=0.01)

    def loss(model, _):
        pick = torch.randint(0, 19_999, (256,), device="cuda")
        now, later = kept[pick].float() / 255, kept[pick + 1].float() / 255
        with torch.no_grad():
            aim = gain[pick] + 0.99 * lags(later).gather(1, model(later).argmax(1, keepdim=True)).squeeze(1)
        return F.smooth_l1_loss(model(now).gather(1, done[pick][:, None]).squeeze(1), aim)

    return trained(body, None, loss, optimizer=rms, clip=10.0)


@script
def rectified_bf16():
    """Rectified flow: text and image in two streams that attend together."""

    class Stream(nn.Module):
        def __init__(self, wide):
            super().__init__()
            self.shift, self.qkv, self.out = nn.Linear(wide, 6 * wide), nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
            self.norms = nn.ModuleList(nn.LayerNorm(wide, elementwise_affine=False) for _ in range(2))
            self.tidy = nn.ModuleList(nn.RMSNorm(64) for _ in range(2))
            self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(approximate="tanh"), nn.Linear(4 * wide, wide))

        def asked(self, x, t):
            self.parts = self.shift(F.silu(t))[:, None].chunk(6, -1)
            y = self.norms[0](x) * (1 + self.parts[0]) + self.parts[1]
            q, k, v = self.qkv(y).unflatten(-1, (3, -1, 64)).permute(2, 0, 3, 1, 4)
            return self.tidy[0](q).to(v.dtype), self.tidy[1](k).to(v.dtype), v

        def given(self, x, y):
            _, _, open1, scale, move, open2 = self.parts
            x = x + open1 * self.out(y)
            return x + open2 * self.mlp(self.norms[1](x) * (1 + scale) + move)

    class Net(nn.Module):
        def __init__(self, wide=1024, layers=12):
            super().__init__()
            self.image, self.text, self.time = nn.Linear(64, wide), nn.Linear(2048, wide), nn.Linear(256, wide)
            pair = lambda: nn.ModuleList([Stream(wide), Stream(wide)])
            self.layers, self.last = nn.ModuleList(pair() for _ in range(layers)), nn.Linear(wide, 64)

        def forward(self, image, text, t):
            t = self.time(t)
            x, y = self.image(image), self.text(text)
            for one, two in self.layers:
                both = [torch.cat(pair, 2) for pair in zip(one.asked(x, t), two.asked(y, t), strict=True)]
                out = F.scaled_dot_product_attention(*both).transpose(1, 2).flatten(2)
                x, y = one.given(x, out[:, : x.shape[1]]), two.given(y, out[:, x.shape[1] :])
            return self.last(x)

    clean, text = torch.randn(16, 1024, 64, device="cuda"), torch.randn(16, 256, 2048, device="cuda")

    def loss(model, _):
        noise, at = torch.randn_like(clean), torch.rand(16, 1, 1, device="cuda")
        wave = at[:, :, 0] * 1000 * torch.exp(-torch.linspace(0, 9, 128, device="cuda"))
        out = model((1 - at) * clean + at * noise, text, torch.cat([wave.sin(), wave.cos()], -1))
        return F.mse_loss(out.float(), noise - clean)

    return trained(Net().cuda(), None, loss, amp=torch.bfloat16, clip=1.0)


@script
def derived_fp32():
    """A network that solves an equation: second derivatives of what it says by where it is asked."""
    layers = [m for _ in range(6) for m in (nn.Linear(128, 128), nn.Tanh())]
    model = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), *layers, nn.Linear(128, 1)).cuda()
    edge, aim = torch.rand(4096, 3, device="cuda"), torch.zeros(4096, 1, device="cuda")

    def loss(model, _):
        x = torch.rand(16384, 3, device="cuda", requires_grad=True)
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        bends = sum(torch.autograd.grad(slope[:, n].sum(), x, create_graph=True)[0][:, n] for n in range(2))
        return (slope[:, 2] - 0.01 * bends + out.squeeze(1) * slope[:, 0]).square().mean() + F.mse_loss(
            model(edge), aim
        )

    return trained(model, None, loss, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))


if __name__ == "__main__":
    forever()
