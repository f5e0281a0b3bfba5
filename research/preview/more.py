"""Further training scripts on one GPU, of kinds that `zoo.py` lacks: `python research/preview/more.py NAME`.

Each was predicted once, before its kernels had been seen, and then measured once (`real.py`).
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from loop import classified, forever, language, pictures, script, trained, words
from zoo import Bottleneck, Gpt, next_word

# ---- convolutions


def plain(inner, out, *args, **named):
    return nn.Sequential(nn.Conv2d(inner, out, *args, bias=False, **named), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


@script
def wide_resnet_bf16_last():
    layers, inner = [plain(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for block in range(depth):
            layers.append(Bottleneck(inner, 128 << stage, 256 << stage, 2 if stage and not block else 1))
            inner = 256 << stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    return trained(model, pictures(96, 224, last=True), classified, amp=torch.bfloat16, optimizer=sgd)


@script
def inception_tf32():
    class Factored(nn.Module):
        def __init__(self, inner, mid):
            super().__init__()
            self.one = plain(inner, 192, 1)
            self.two = nn.Sequential(
                plain(inner, mid, 1), plain(mid, mid, (1, 7), padding=(0, 3)), plain(mid, 192, (7, 1), padding=(3, 0))
            )
            self.pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), plain(inner, 192, 1))
            self.three = nn.Sequential(plain(inner, mid, 1), plain(mid, 192, 3, padding=1))

        def forward(self, x):
            return torch.cat([self.one(x), self.two(x), self.pool(x), self.three(x)], 1)

    torch.backends.cuda.matmul.allow_tf32 = True
    stem = [plain(3, 32, 3, 2), plain(32, 64, 3), nn.MaxPool2d(3, 2), plain(64, 192, 3), nn.MaxPool2d(3, 2)]
    body = [Factored(192, 128), *(Factored(768, 160) for _ in range(5)), nn.MaxPool2d(3, 2), Factored(768, 192)]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(768, 1000)]
    return trained(nn.Sequential(*stem, *body, *tail).cuda(), pictures(64, 299), classified)


@script
def unet2d_fp16():
    class Unet(nn.Module):
        def __init__(self, widths=(64, 128, 256, 512)):
            super().__init__()
            pair = lambda a, b: nn.Sequential(plain(a, b, 3, padding=1), plain(b, b, 3, padding=1))  # noqa: E731
            self.down = nn.ModuleList(pair(a, b) for a, b in zip((3, *widths), widths, strict=False))
            back = widths[::-1]
            self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in itertools.pairwise(back))
            self.up = nn.ModuleList(pair(a, b) for a, b in itertools.pairwise(back))
            self.last = nn.Conv2d(widths[0], 21, 1)

        def forward(self, x):
            kept = []
            for level, block in enumerate(self.down):
                x = block(F.max_pool2d(x, 2) if level else x)
                kept.append(x)
            for grow, block, skip in zip(self.grow, self.up, kept[-2::-1], strict=True):
                x = block(torch.cat([grow(x), skip], 1))
            return self.last(x)

    batch = torch.randn(8, 3, 384, 384, device="cuda"), torch.randint(0, 21, (8, 384, 384), device="cuda")
    return trained(Unet().cuda(), batch, classified, amp=torch.float16, scaler=True)


@script
def gan_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    wide, up, down = 128, [nn.ConvTranspose2d(100, 1024, 4, bias=False)], [nn.Conv2d(3, 128, 4, 2, 1)]
    for n in (4, 2, 1):
        up += [nn.BatchNorm2d(2 * n * wide), nn.ReLU(True), nn.ConvTranspose2d(2 * n * wide, n * wide, 4, 2, 1)]
    for n in (1, 2, 4):
        down += [nn.LeakyReLU(0.2, True), nn.Conv2d(n * wide, 2 * n * wide, 4, 2, 1), nn.BatchNorm2d(2 * n * wide)]
    makes = nn.Sequential(*up, nn.BatchNorm2d(wide), nn.ReLU(True), nn.ConvTranspose2d(wide, 3, 4, 2, 1), nn.Tanh())
    judges = nn.Sequential(*down, nn.LeakyReLU(0.2, True), nn.Conv2d(8 * wide, 1, 4), nn.Flatten())
    makes, judges = makes.cuda(), judges.cuda()
    both = torch.optim.Adam([*makes.parameters(), *judges.parameters()], lr=2e-4, betas=(0.5, 0.999))
    real, zero, one = (f(128, n, device="cuda") for f, n in ((torch.zeros, 1), (torch.zeros, 1), (torch.ones, 1)))
    real = torch.rand(128, 3, 64, 64, device="cuda")

    def step():
        fake = makes(torch.randn(128, 100, 1, 1, device="cuda"))
        loss = F.binary_cross_entropy_with_logits(judges(real), one)
        loss = loss + F.binary_cross_entropy_with_logits(judges(fake), zero)
        loss.backward()
        both.step()
        both.zero_grad(set_to_none=True)

    return step


@script
def sharper_bf16():
    class Sharper(nn.Module):
        def __init__(self, wide=64):
            super().__init__()
            self.head = nn.Conv2d(3, wide, 3, padding=1)
            one = lambda: nn.Sequential(  # noqa: E731
                nn.Conv2d(wide, wide, 3, padding=1), nn.PReLU(), nn.Conv2d(wide, wide, 3, padding=1)
            )
            self.body = nn.ModuleList(one() for _ in range(16))
            self.tail = nn.Sequential(nn.Conv2d(wide, 16 * 3, 3, padding=1), nn.PixelShuffle(4))

        def forward(self, x):
            x = self.head(x)
            for block in self.body:
                x = x + block(x)
            return self.tail(x)

    batch = torch.rand(32, 3, 96, 96, device="cuda"), torch.rand(32, 3, 384, 384, device="cuda")
    return trained(Sharper().cuda(), batch, lambda m, b: F.l1_loss(m(b[0]), b[1]), amp=torch.bfloat16)


@script
def pyramid_bf16_last():
    """A detector's backbone, feature pyramid and dense heads."""

    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, inner = nn.Sequential(plain(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)), 64
            self.stages = nn.ModuleList()
            for stage, depth in enumerate((3, 4, 6, 3)):
                blocks = []
                for block in range(depth):
                    blocks.append(Bottleneck(inner, 64 << stage, 256 << stage, 2 if stage and not block else 1))
                    inner = 256 << stage
                self.stages.append(nn.Sequential(*blocks))
            self.side = nn.ModuleList(nn.Conv2d(256 << n, 256, 1) for n in (1, 2, 3))
            self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
            tower = [nn.Conv2d(256, 256, 3, padding=1), nn.GroupNorm(32, 256), nn.ReLU(inplace=True)]
            self.head = nn.Sequential(*(layer for _ in range(4) for layer in tower), nn.Conv2d(256, 84, 3, padding=1))

        def forward(self, x):
            x, found, above = self.stem(x), [], None
            for n, stage in enumerate(self.stages):
                x = stage(x)
                found.append(x) if n else None
            outs = []
            for n in (2, 1, 0):
                here = self.side[n](found[n])
                above = here if above is None else here + F.interpolate(above, scale_factor=2.0, mode="nearest")
                outs.append(self.head(self.smooth[n](above)))
            return outs

    def loss(model, images):
        return sum(out.float().sigmoid().mul(out.float().square() + 1).mean() for out in model(images))

    images = torch.randn(8, 3, 640, 640, device="cuda").to(memory_format=torch.channels_last)
    model = Pyramid().cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(model, images, loss, amp=torch.bfloat16, optimizer=sgd, clip=10.0)


@script
def wavenet_fp16():
    class Gated(nn.Module):
        def __init__(self, wide, dilation):
            super().__init__()
            self.both = nn.Conv1d(wide, 2 * wide, 2, dilation=dilation, padding=dilation)
            self.out = nn.Conv1d(wide, 2 * wide, 1)

        def forward(self, x):
            a, b = self.both(x)[..., : x.shape[-1]].chunk(2, 1)
            rest, skip = self.out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            return x + rest, skip

    class Wave(nn.Module):
        def __init__(self, wide=128):
            super().__init__()
            self.head, self.tail = nn.Embedding(256, wide), nn.Conv1d(wide, 256, 1)
            self.body = nn.ModuleList(Gated(wide, 1 << n % 8) for n in range(16))

        def forward(self, x):
            x, total = self.head(x).transpose(1, 2), 0
            for block in self.body:
                x, skip = block(x)
                total = total + skip
            return self.tail(F.relu(total))

    loss = lambda m, b: F.cross_entropy(m(b[:, :-1]).float(), b[:, 1:])  # noqa: E731
    return trained(Wave().cuda(), words(256, 8, 16001), loss, amp=torch.float16, scaler=True)


@script
def convnext_compiled():
    from zoo import Next

    layers, inner = [nn.Conv2d(3, 80, 4, 4)], 80
    for stage, depth in enumerate((2, 2, 6, 2)):
        wide = 80 << stage
        layers += [nn.GroupNorm(1, inner), nn.Conv2d(inner, wide, 2, 2)] if stage else []
        layers += [Next(wide) for _ in range(depth)]
        inner = wide
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    return trained(torch.compile(model), pictures(96, 224), classified, amp=torch.bfloat16)


# ---- language


@script
def gemma_bf16():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=64000, hidden_size=1536, intermediate_size=6144, num_hidden_layers=10, num_attention_heads=8,
        num_key_value_heads=4, head_dim=192, sliding_window=1024,
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).cuda().to(torch.bfloat16)
    return trained(model, words(64000, 4, 2048), language, clip=1.0)


@script
def bloom_bf16():
    from transformers import BloomConfig, BloomForCausalLM

    model = BloomForCausalLM(BloomConfig(vocab_size=50304, hidden_size=1024, n_layer=16, n_head=16)).cuda()
    return trained(model, words(50304, 8, 1024), language, amp=torch.bfloat16)


@script
def bart_bf16():
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(d_model=1024, encoder_layers=12, decoder_layers=12)
    model = BartForConditionalGeneration(config).cuda().to(torch.bfloat16)
    batch = words(50000, 16, 768), words(50000, 16, 128)
    return trained(model, batch, lambda m, b: m(input_ids=b[0], labels=b[1]).loss)


@script
def deberta_fp16():
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=32000, hidden_size=768, num_hidden_layers=8, num_attention_heads=12, intermediate_size=3072,
        relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"], share_att_key=True,
        max_relative_positions=-1,
    )  # fmt: skip
    model = DebertaV2ForMaskedLM(config).cuda()
    return trained(model, words(32000, 16, 384), language, amp=torch.float16, scaler=True)


@script
def albert_bf16():
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(hidden_size=2048, intermediate_size=8192, num_attention_heads=16, num_hidden_layers=12)
    return trained(AlbertForMaskedLM(config).cuda(), words(30000, 16, 512), language, amp=torch.bfloat16)


@script
def llama_adapted():
    """Low-rank adapters on a frozen model, with activations recomputed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    class Adapted(nn.Module):
        def __init__(self, base, rank=16):
            super().__init__()
            self.base, self.a = base, nn.Linear(base.in_features, rank, bias=False)
            self.b = nn.Linear(rank, base.out_features, bias=False)

        def forward(self, x):
            return self.base(x) + 2.0 * self.b(self.a(x))

    config = LlamaConfig(
        vocab_size=32000, hidden_size=3072, intermediate_size=8192, num_hidden_layers=12, num_attention_heads=24,
        num_key_value_heads=8,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))
    model = model.to(torch.bfloat16).cuda()
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    model.train()
    small = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    return trained(model, words(32000, 4, 2048), language, optimizer=small)


@script
def llama_autocast_accumulated():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=1536, intermediate_size=5376, num_hidden_layers=10, num_attention_heads=24,
        num_key_value_heads=8,
    )  # fmt: skip
    model = LlamaForCausalLM(config).cuda()
    return trained(model, words(128256, 2, 4096), language, amp=torch.bfloat16, accumulate=2, clip=1.0)


@script
def gpt_muon():
    model = Gpt(wide=1024, layers=16, heads=16, vocab=32000, length=1024).cuda()
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and "blocks" in n]
    muon = torch.optim.Muon(hidden, lr=0.02, momentum=0.95)
    return trained(model, words(32000, 8, 1025), next_word, amp=torch.bfloat16, optimizer=muon)


@script
def olmoe_bf16():
    from transformers import OlmoeConfig, OlmoeForCausalLM

    config = OlmoeConfig(
        vocab_size=50304, hidden_size=1024, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=16,
        num_experts=32, num_experts_per_tok=4,
    )  # fmt: skip
    model = OlmoeForCausalLM(config).cuda().to(torch.bfloat16)
    return trained(model, words(50304, 8, 1024), language)


@script
def bert_compiled():
    from transformers import BertConfig, BertForMaskedLM

    model = torch.compile(BertForMaskedLM(BertConfig()).cuda())
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(30522, 32, 512), language, amp=torch.bfloat16, optimizer=fused)


# ---- speech, vision with attention, others


@script
def wav2vec_bf16():
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(vocab_size=32, mask_time_prob=0.0, layerdrop=0.0, ctc_loss_reduction="mean", pad_token_id=0)
    batch = torch.randn(8, 160000, device="cuda"), torch.randint(1, 32, (8, 60), device="cuda")
    model = Wav2Vec2ForCTC(config).cuda()
    return trained(model, batch, lambda m, b: m(b[0]).logits.float().logsumexp(-1).mean(), amp=torch.bfloat16)


@script
def conformer_bf16():
    class Conformer(nn.Module):
        def __init__(self, wide=512, heads=8):
            super().__init__()
            feed = lambda: nn.Sequential(  # noqa: E731
                nn.LayerNorm(wide), nn.Linear(wide, 4 * wide), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * wide, wide)
            )
            self.first, self.second, self.heads = feed(), feed(), heads
            self.norm, self.qkv, self.out = nn.LayerNorm(wide), nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
            self.before, self.wide = nn.LayerNorm(wide), nn.Conv1d(wide, 2 * wide, 1)
            self.depth = nn.Conv1d(wide, wide, 31, padding=15, groups=wide)
            self.batch, self.back, self.last = nn.BatchNorm1d(wide), nn.Conv1d(wide, wide, 1), nn.LayerNorm(wide)

        def forward(self, x):
            b, n, c = x.shape
            x = x + 0.5 * self.first(x)
            q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))
            y = F.glu(self.wide(self.before(x).transpose(1, 2)), 1)
            x = x + self.back(F.silu(self.batch(self.depth(y)))).transpose(1, 2)
            return self.last(x + 0.5 * self.second(x))

    model = nn.Sequential(nn.Linear(80, 512), *(Conformer() for _ in range(12)), nn.Linear(512, 256)).cuda()
    batch = torch.randn(32, 500, 80, device="cuda"), torch.randint(0, 256, (32, 500), device="cuda")
    loss = lambda m, b: F.cross_entropy(m(b[0]).flatten(0, 1).float(), b[1].flatten())  # noqa: E731
    return trained(model, batch, loss, amp=torch.bfloat16, clip=5.0)


@script
def masked_vit_bf16():
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    model = ViTMAEForPreTraining(ViTMAEConfig()).cuda()
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    loss = lambda m, b: m(pixel_values=b).loss  # noqa: E731
    return trained(model, pictures(128, 224)[0], loss, amp=torch.bfloat16, optimizer=fused)


@script
def gru_speech():
    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(
                nn.Conv2d(1, 32, (11, 41), (2, 2), (5, 20)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)
            )
            self.rnn = nn.GRU(32 * 40, 800, 3, bidirectional=True, batch_first=True)
            self.head = nn.Linear(1600, 29)

        def forward(self, x):
            x = self.conv(x)
            return self.head(self.rnn(x.permute(0, 2, 1, 3).flatten(2))[0])

    batch = torch.randn(32, 1, 400, 80, device="cuda"), torch.randint(0, 29, (32, 200), device="cuda")
    loss = lambda m, b: F.cross_entropy(m(b[0]).flatten(0, 1).float(), b[1].flatten())  # noqa: E731
    return trained(Speech().cuda(), batch, loss, amp=torch.bfloat16, clip=400.0)


@script
def graph_attention():
    class Attends(nn.Module):
        def __init__(self, inner, heads=8, each=32):
            super().__init__()
            self.heads, self.lift = heads, nn.Linear(inner, heads * each)
            self.score = nn.Linear(2 * each, 1)

        def forward(self, x, source, target):
            h = self.lift(x).view(len(x), self.heads, -1)
            a = F.leaky_relu(self.score(torch.cat([h[source], h[target]], -1)), 0.2).exp()
            total = torch.zeros(len(x), self.heads, 1, device=x.device).index_add(0, target, a)
            out = torch.zeros_like(h).index_add(0, target, a * h[source])
            return (out / (total + 1e-9)).flatten(1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Attends(128), Attends(256), Attends(256)])
            self.head = nn.Linear(256, 47)

        def forward(self, x, source, target):
            for layer in self.layers:
                x = F.elu(layer(x, source, target))
            return self.head(x)

    nodes, edges = 100_000, 1_000_000
    x, labels = torch.randn(nodes, 128, device="cuda"), torch.randint(0, 47, (nodes,), device="cuda")
    source, target = torch.randint(0, nodes, (2, edges), device="cuda")
    loss = lambda m, b: F.cross_entropy(m(b[0], b[2], b[3]), b[1])  # noqa: E731
    return trained(Net().cuda(), (x, labels, source, target), loss)


@script
def clicks_bf16():
    class Clicks(nn.Module):
        def __init__(self, tables=26, wide=128, rows=200_000):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, wide, mode="sum") for _ in range(tables))
            feed = lambda *n: [m for a, b in itertools.pairwise(n) for m in (nn.Linear(a, b), nn.ReLU())]  # noqa: E731
            self.low = nn.Sequential(*feed(13, 512, 256, wide))
            self.top = nn.Sequential(*feed(wide + 351, 1024, 1024, 512, 256), nn.Linear(256, 1))
            self.pairs = torch.tril_indices(27, 27, -1, device="cuda")

        def forward(self, dense, sparse):
            x = self.low(dense)
            every = torch.stack([x, *(t(s) for t, s in zip(self.tables, sparse, strict=True))], 1)
            pairs = torch.bmm(every, every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([x, pairs], 1))

    dense, click = torch.randn(16384, 13, device="cuda"), torch.rand(16384, 1, device="cuda")
    sparse = torch.randint(0, 200_000, (26, 16384, 4), device="cuda")
    model = Clicks().cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = lambda m, b: F.binary_cross_entropy_with_logits(m(b[0], b[1]).float(), b[2])  # noqa: E731
    return trained(model, (dense, sparse, click), loss, amp=torch.bfloat16, optimizer=sgd)


@script
def radiance_tf32():
    class Radiance(nn.Module):
        def __init__(self, wide=256, bands=10):
            super().__init__()
            self.bands = (2.0 ** torch.arange(bands) * math.pi).cuda()
            self.first = nn.Linear(3 + 6 * bands, wide)
            self.body, self.last = nn.ModuleList(nn.Linear(wide, wide) for _ in range(7)), nn.Linear(wide, 4)

        def forward(self, x):
            angles = (x[..., None] * self.bands).flatten(-2)
            x = F.relu(self.first(torch.cat([x, angles.sin(), angles.cos()], -1)))
            for layer in self.body:
                x = F.relu(layer(x))
            colour, thick = self.last(x).split((3, 1), -1)
            through = torch.exp(-torch.cumsum(F.softplus(thick), 1))
            return (through * colour.sigmoid()).sum(1)

    torch.backends.cuda.matmul.allow_tf32 = True
    batch = torch.rand(4096, 128, 3, device="cuda"), torch.rand(4096, 3, device="cuda")
    model = Radiance().cuda()
    adam = torch.optim.Adam(model.parameters(), lr=5e-4)
    return trained(model, batch, lambda m, b: F.mse_loss(m(b[0]), b[1]), optimizer=adam)


if __name__ == "__main__":
    forever()
