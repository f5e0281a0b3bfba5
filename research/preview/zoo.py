"""Training scripts of many kinds on one GPU: `python research/preview/zoo.py NAME` trains one for ever.

`preview` predicts each before a GPU measures it (`real.py`). A script is a function that returns its step. Models of
transformers come from their configurations with random weights.
"""

# mypy: ignore-errors
from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from loop import classified, forever, language, pictures, script, trained, words

# ---- convolutions


class Bottleneck(nn.Module):
    def __init__(self, inner, width, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = inner == out and stride == 1
        self.skip = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet(depths=(3, 4, 6, 3), classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for stage, depth in enumerate(depths):
        for block in range(depth):
            out = 256 << stage
            layers.append(Bottleneck(inner, 64 << stage, out, 2 if stage and not block else 1))
            inner = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))


@script
def resnet50_fp16_last():
    model = resnet().cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return trained(model, pictures(256, 224, last=True), classified, amp=torch.float16, scaler=True, optimizer=sgd)


@script
def resnet50_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    model = resnet().cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return trained(model, pictures(96, 224), classified, optimizer=sgd)


@script
def vgg_bf16():
    layers, inner = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(inner, width, 3, padding=1), nn.ReLU(inplace=True)]
            inner = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 1000)]
    model = nn.Sequential(*layers, *head).cuda()
    return trained(model, pictures(64, 224), classified, amp=torch.bfloat16)


class Inverted(nn.Module):
    def __init__(self, inner, out, stride, expand=4):
        super().__init__()
        mid = inner * expand
        self.same = stride == 1 and inner == out
        self.body = nn.Sequential(
            nn.Conv2d(inner, mid, 1, bias=False),
            nn.BatchNorm2d(mid),
            nn.SiLU(),
            nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False),
            nn.BatchNorm2d(mid),
            nn.SiLU(),
            nn.Conv2d(mid, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


@script
def mobile_bf16_last():
    layers, inner = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.SiLU()], 32
    for out, count, stride in ((24, 2, 1), (48, 4, 2), (96, 4, 2), (160, 6, 2), (256, 8, 2)):
        for block in range(count):
            layers.append(Inverted(inner, out, stride if not block else 1))
            inner = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    return trained(model, pictures(256, 224, last=True), classified, amp=torch.bfloat16)


class Next(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.depth = nn.Conv2d(wide, wide, 7, padding=3, groups=wide)
        self.norm, self.up, self.down = nn.LayerNorm(wide), nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.scale = nn.Parameter(1e-6 * torch.ones(wide))

    def forward(self, x):
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


@script
def convnext_bf16():
    layers, inner = [nn.Conv2d(3, 96, 4, 4)], 96
    for stage, depth in enumerate((3, 3, 9, 3)):
        wide = 96 << stage
        if stage:
            layers += [nn.GroupNorm(1, inner), nn.Conv2d(inner, wide, 2, 2)]
        layers += [Next(wide) for _ in range(depth)]
        inner = wide
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    return trained(model, pictures(128, 224), classified, amp=torch.bfloat16)


class Double(nn.Sequential):
    def __init__(self, inner, out):
        super().__init__(
            nn.Conv3d(inner, out, 3, padding=1),
            nn.InstanceNorm3d(out, affine=True),
            nn.LeakyReLU(0.01, True),
            nn.Conv3d(out, out, 3, padding=1),
            nn.InstanceNorm3d(out, affine=True),
            nn.LeakyReLU(0.01, True),
        )


class Unet3d(nn.Module):
    def __init__(self, wide=32, levels=4):
        super().__init__()
        sizes = [wide << level for level in range(levels + 1)]
        self.down = nn.ModuleList(Double(a, b) for a, b in zip([1, *sizes[:-1]], sizes, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in itertools.pairwise(sizes))
        self.join = nn.ModuleList(Double(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv3d(wide, 3, 1)

    def forward(self, x):
        kept = []
        for number, block in enumerate(self.down):
            x = block(x if not number else F.max_pool3d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.join[level](torch.cat([self.up[level](x), kept[level]], 1))
        return self.head(x)


def segmented(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


@script
def unet3d_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Unet3d().cuda()
    batch = torch.randn(2, 1, 96, 96, 96, device="cuda"), torch.randint(0, 3, (2, 96, 96, 96), device="cuda")
    return trained(model, batch, segmented)


@script
def unet3d_fp16():
    model = Unet3d().cuda()
    batch = torch.randn(2, 1, 128, 128, 128, device="cuda"), torch.randint(0, 3, (2, 128, 128, 128), device="cuda")
    return trained(model, batch, segmented, amp=torch.float16, scaler=True)


class Residual(nn.Module):
    def __init__(self, inner, out, time):
        super().__init__()
        self.a = nn.Sequential(nn.GroupNorm(32, inner), nn.SiLU(), nn.Conv2d(inner, out, 3, padding=1))
        self.t = nn.Sequential(nn.SiLU(), nn.Linear(time, out))
        self.b = nn.Sequential(nn.GroupNorm(32, out), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Identity() if inner == out else nn.Conv2d(inner, out, 1)

    def forward(self, x, t):
        return self.skip(x) + self.b(self.a(x) + self.t(t)[:, :, None, None])


class Pixels(nn.Module):
    def __init__(self, wide, heads=8):
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = (
            nn.GroupNorm(32, wide),
            nn.Linear(wide, 3 * wide),
            nn.Linear(wide, wide),
            heads,
        )

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(y).view(b, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c))
        return x + y.transpose(1, 2).view(b, c, h, w)


class Noise(nn.Module):
    def __init__(self, wide=192):
        super().__init__()
        sizes = [wide, 2 * wide, 3 * wide]
        self.inp, self.time = (
            nn.Conv2d(4, wide, 3, padding=1),
            nn.Sequential(nn.Linear(wide, 4 * wide), nn.SiLU(), nn.Linear(4 * wide, 4 * wide)),
        )
        self.down, self.up, inner = nn.ModuleList(), nn.ModuleList(), wide
        for size in sizes:
            self.down.append(
                nn.ModuleList([Residual(inner, size, 4 * wide), Pixels(size), nn.Conv2d(size, size, 3, 2, 1)])
            )
            inner = size
        for size in reversed(sizes):
            self.up.append(nn.ModuleList([Residual(inner + size, size, 4 * wide), Pixels(size)]))
            inner = size
        self.out = nn.Sequential(nn.GroupNorm(32, inner), nn.SiLU(), nn.Conv2d(inner, 4, 3, padding=1))
        self.wide = wide

    def forward(self, x, t):
        t = self.time(t)
        x, kept = self.inp(x), []
        for block, attend, down in self.down:
            x = attend(block(x, t))
            kept.append(x)
            x = down(x)
        for block, attend in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = attend(block(torch.cat([x, kept.pop()], 1), t))
        return self.out(x)


@script
def diffusion_bf16():
    model = Noise().cuda()
    batch = torch.randn(32, 4, 64, 64, device="cuda"), torch.randn(32, 192, device="cuda")
    return trained(model, batch, lambda m, b: F.mse_loss(m(*b), b[0]), amp=torch.bfloat16, clip=1.0)


# ---- language


@script
def llama_checkpointed():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config).cuda().to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.train()
    return trained(model, words(32000, 8, 2048), language)


@script
def qwen_long():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=14,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).cuda().to(torch.bfloat16)
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(151936, 1, 8192), language, optimizer=fused, clip=1.0)


@script
def bert_large():
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    ).cuda()
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(30522, 32, 512), language, amp=torch.bfloat16, optimizer=fused)


@script
def t5_sgd():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=1024, d_ff=4096, num_layers=24, num_heads=16, d_kv=64, decoder_start_token_id=0, pad_token_id=0
    )
    model = T5ForConditionalGeneration(config).cuda().to(torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    return trained(model, words(32128, 8, 512), language, optimizer=sgd)


@script
def gpt2_eager_tf32():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.backends.cuda.matmul.allow_tf32 = True
    model = GPT2LMHeadModel(GPT2Config()).cuda()
    return trained(model, words(50257, 8, 1024), language)


@script
def mixtral_eager():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=3584,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        num_local_experts=8,
    )
    model = MixtralForCausalLM(config).cuda().to(torch.bfloat16)
    return trained(model, words(32000, 8, 1024), language)


@script
def whisper_bf16():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
    )
    model = WhisperForConditionalGeneration(config).cuda()
    batch = torch.randn(16, 80, 3000, device="cuda"), words(51865, 16, 200)
    return trained(model, batch, lambda m, b: m(input_features=b[0], labels=b[1]).loss, amp=torch.bfloat16)


class Block(nn.Module):
    def __init__(self, wide, heads, drop=0.0, causal=True, bias=False):
        super().__init__()
        self.norm, self.last, self.heads, self.causal, self.drop = (
            nn.LayerNorm(wide),
            nn.LayerNorm(wide),
            heads,
            causal,
            drop,
        )
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down, self.lose = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide), nn.Dropout(drop)
        self.bias = bias

    def forward(self, x, mask=None):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal and mask is None, dropout_p=self.drop
        )
        x = x + self.lose(self.out(y.transpose(1, 2).reshape(b, n, c)))
        return x + self.lose(self.down(F.gelu(self.up(self.last(x)))))


class Gpt(nn.Module):
    def __init__(self, wide=1024, layers=24, heads=16, vocab=50304, drop=0.0, length=1024):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, wide), nn.Embedding(length, wide)
        self.blocks = nn.ModuleList(Block(wide, heads, drop) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(wide), nn.Linear(wide, vocab, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_word(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


@script
def gpt_compiled():
    model = torch.compile(Gpt().cuda())
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(50304, 8, 1025), next_word, amp=torch.bfloat16, optimizer=fused)


@script
def gpt_accumulated():
    model = Gpt(wide=1600, layers=12, heads=25, drop=0.1).cuda()
    return trained(model, words(50304, 8, 1025), next_word, amp=torch.bfloat16, accumulate=2, clip=1.0)


@script
def lstm_words():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm, self.head = (
                nn.Embedding(33000, 1024),
                nn.LSTM(1024, 1024, 2, batch_first=True, dropout=0.2),
                nn.Linear(1024, 33000),
            )

        def forward(self, tokens):
            return self.head(self.lstm(self.words(tokens))[0])

    return trained(Words().cuda(), words(33000, 64, 129), next_word, clip=0.25)


# ---- vision with attention, others


@script
def vit_large():
    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.place = nn.Conv2d(3, 1024, 16, 16), nn.Parameter(torch.zeros(1, 197, 1024))
            self.cls, self.head = nn.Parameter(torch.zeros(1, 1, 1024)), nn.Linear(1024, 1000)
            self.blocks = nn.ModuleList(Block(1024, 16, 0.1, causal=False) for _ in range(24))

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.place
            for block in self.blocks:
                x = block(x)
            return self.head(x[:, 0])

    return trained(Vit().cuda(), pictures(64, 224), classified, amp=torch.bfloat16)


@script
def windows_biased():
    class Windows(nn.Module):
        def __init__(self, wide=384, heads=12, side=56, window=7):
            super().__init__()
            self.patch, self.head, self.window = nn.Conv2d(3, wide, 4, 4), nn.Linear(wide, 1000), window
            self.blocks = nn.ModuleList(Block(wide, heads, causal=False) for _ in range(8))
            self.bias = nn.ParameterList(nn.Parameter(torch.zeros(heads, window**2, window**2)) for _ in range(8))

        def forward(self, x):
            x = self.patch(x)
            b, c, h, w = x.shape
            n = self.window
            x = x.view(b, c, h // n, n, w // n, n).permute(0, 2, 4, 3, 5, 1).reshape(-1, n * n, c)
            for number, (block, bias) in enumerate(zip(self.blocks, self.bias, strict=True)):
                x = block(x, bias[None].to(torch.bfloat16))
                if number % 2:
                    x = x.view(b, h // n, w // n, n * n, c).roll((1, 1), (1, 2)).reshape(-1, n * n, c)
            return self.head(x.view(b, -1, c).mean(1))

    return trained(Windows().cuda(), pictures(64, 224), classified, amp=torch.bfloat16)


@script
def dit_fp16():
    class Dit(nn.Module):
        def __init__(self, wide=1152, layers=14):
            super().__init__()
            self.inp, self.out = nn.Linear(16, wide), nn.Linear(wide, 16)
            self.blocks = nn.ModuleList(Block(wide, 16, causal=False) for _ in range(layers))
            self.shift = nn.ModuleList(nn.Linear(wide, 2 * wide) for _ in range(layers))

        def forward(self, x, t):
            x = self.inp(x)
            for block, shift in zip(self.blocks, self.shift, strict=True):
                a, b = shift(F.silu(t)).chunk(2, -1)
                x = block(x * (1 + a[:, None]) + b[:, None])
            return self.out(x)

    batch = torch.randn(64, 256, 16, device="cuda"), torch.randn(64, 1152, device="cuda")
    return trained(Dit().cuda(), batch, lambda m, b: F.mse_loss(m(*b), b[0]), amp=torch.float16, scaler=True)


@script
def recommender():
    class Recommend(nn.Module):
        def __init__(self, tables=26, rows=200_000, wide=64):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, wide, mode="sum") for _ in range(tables))
            self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, wide), nn.ReLU())
            pairs = (tables + 1) * tables // 2
            self.top = nn.Sequential(
                nn.Linear(wide + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
            )
            self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

        def forward(self, dense, ids):
            dense = self.bottom(dense)
            each = torch.stack([dense, *(table(ids[:, n]) for n, table in enumerate(self.tables))], 1)
            crossed = (each @ each.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([dense, crossed], 1)).squeeze(1)

    model = Recommend().cuda()
    batch = (
        torch.randn(8192, 13, device="cuda"),
        torch.randint(0, 200_000, (8192, 26, 4), device="cuda"),
        torch.rand(8192, device="cuda"),
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return trained(model, batch, lambda m, b: F.binary_cross_entropy_with_logits(m(b[0], b[1]), b[2]), optimizer=sgd)


@script
def graph_messages():
    class Graph(nn.Module):
        def __init__(self, wide=256, layers=6):
            super().__init__()
            self.inp, self.out = nn.Linear(128, wide), nn.Linear(wide, 40)
            self.own = nn.ModuleList(nn.Linear(wide, wide) for _ in range(layers))
            self.near = nn.ModuleList(nn.Linear(wide, wide) for _ in range(layers))
            self.norms = nn.ModuleList(nn.BatchNorm1d(wide) for _ in range(layers))

        def forward(self, x, source, target):
            x = self.inp(x)
            for own, near, norm in zip(self.own, self.near, self.norms, strict=True):
                summed = torch.zeros_like(x).index_add_(0, target, near(x)[source])
                x = x + F.relu(norm(own(x) + summed))
            return self.out(x)

    nodes, edges = 100_000, 1_000_000
    batch = (
        torch.randn(nodes, 128, device="cuda"),
        torch.randint(0, nodes, (edges,), device="cuda"),
        torch.randint(0, nodes, (edges,), device="cuda"),
        torch.randint(0, 40, (nodes,), device="cuda"),
    )
    return trained(Graph().cuda(), batch, lambda m, b: F.cross_entropy(m(*b[:3]), b[3]))


@script
def speech_convolved():
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(vocab_size=32, apply_spec_augment=False, layerdrop=0.0)
    model = Wav2Vec2ForCTC(config).cuda()
    batch = torch.randn(8, 160_000, device="cuda"), torch.randint(1, 32, (8, 100), device="cuda")
    return trained(
        model, batch, lambda m, b: m(b[0]).logits.float().log_softmax(-1).square().mean(), amp=torch.bfloat16
    )


@script
def small_launches():
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()) for _ in range(60)), nn.Linear(256, 10)
    ).cuda()
    return trained(
        model, (torch.randn(256, 256, device="cuda"), torch.randint(0, 10, (256,), device="cuda")), classified
    )


# ---- predicted and measured after the constants were read from the scripts above


@script
def efficient_bf16_last():
    class Squeezed(nn.Module):
        def __init__(self, wide):
            super().__init__()
            self.down, self.up = nn.Conv2d(wide, wide // 16, 1), nn.Conv2d(wide // 16, wide, 1)

        def forward(self, x):
            return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))

    layers, inner = [nn.Conv2d(3, 48, 3, 2, 1, bias=False), nn.BatchNorm2d(48), nn.SiLU()], 48
    for out, count, stride in ((64, 3, 2), (96, 3, 2), (192, 5, 2), (320, 4, 2)):
        for block in range(count):
            layers += [Inverted(inner, out, stride if not block else 1, 6), Squeezed(out)]
            inner = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    return trained(model, pictures(128, 256, last=True), classified, amp=torch.bfloat16)


@script
def dense_fp16():
    class Dense(nn.Module):
        def __init__(self, inner, grow=32):
            super().__init__()
            self.a = nn.Sequential(nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, 4 * grow, 1, bias=False))
            self.b = nn.Sequential(
                nn.BatchNorm2d(4 * grow), nn.ReLU(), nn.Conv2d(4 * grow, grow, 3, padding=1, bias=False)
            )

        def forward(self, x):
            return torch.cat([x, self.b(self.a(x))], 1)

    layers, inner = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(Dense(inner))
            inner += 32
        if stage < 3:
            layers += [nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, inner // 2, 1, bias=False), nn.AvgPool2d(2)]
            inner //= 2
    model = nn.Sequential(
        *layers, nn.BatchNorm2d(inner), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)
    ).cuda()
    return trained(model, pictures(64, 224), classified, amp=torch.float16, scaler=True)


@script
def segment_bf16_last():
    class Dilated(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*list(resnet((3, 4, 6, 3)).children())[:-3])
            self.rates = nn.ModuleList(
                nn.Conv2d(2048, 256, 3, padding=r, dilation=r, bias=False) for r in (1, 6, 12, 18)
            )
            self.head = nn.Sequential(
                nn.BatchNorm2d(1024), nn.ReLU(), nn.Conv2d(1024, 256, 1), nn.ReLU(), nn.Conv2d(256, 21, 1)
            )

        def forward(self, x):
            y = self.body(x)
            y = self.head(torch.cat([rate(y) for rate in self.rates], 1))
            return F.interpolate(y, x.shape[2:], mode="bilinear", align_corners=False)

    model = Dilated().cuda().to(memory_format=torch.channels_last)
    images, _ = pictures(16, 512, last=True)
    batch = images, torch.randint(0, 21, (16, 512, 512), device="cuda")
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return trained(model, batch, segmented, amp=torch.bfloat16, optimizer=sgd)


@script
def autoencoder_fp16():
    class Around(nn.Module):
        def __init__(self, inner, out):
            super().__init__()
            self.a = nn.Sequential(nn.GroupNorm(32, inner), nn.SiLU(), nn.Conv2d(inner, out, 3, padding=1))
            self.b = nn.Sequential(nn.GroupNorm(32, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
            self.skip = nn.Identity() if inner == out else nn.Conv2d(inner, out, 1)

        def forward(self, x):
            return self.skip(x) + self.b(self.a(x))

    down = [nn.Conv2d(3, 128, 3, padding=1), Around(128, 128), nn.Conv2d(128, 128, 3, 2, 1), Around(128, 256)]
    down += [nn.Conv2d(256, 256, 3, 2, 1), Around(256, 512), nn.Conv2d(512, 8, 3, padding=1)]
    up = [nn.Conv2d(8, 512, 3, padding=1), Around(512, 512), nn.Upsample(scale_factor=2), Around(512, 256)]
    up += [
        nn.Upsample(scale_factor=2),
        Around(256, 128),
        nn.GroupNorm(32, 128),
        nn.SiLU(),
        nn.Conv2d(128, 3, 3, padding=1),
    ]
    model, images = nn.Sequential(*down, *up).cuda(), pictures(8, 256)[0]
    return trained(model, images, lambda m, x: F.l1_loss(m(x), x), amp=torch.float16, scaler=True)


@script
def roberta_fp16():
    from transformers import RobertaConfig, RobertaForSequenceClassification

    model = RobertaForSequenceClassification(RobertaConfig(num_labels=3)).cuda()
    batch = words(50000, 128, 128), torch.ones(128, 128, dtype=torch.int64, device="cuda"), words(3, 128, 1).flatten()
    loss = lambda m, b: m(input_ids=b[0], attention_mask=b[1], labels=b[2]).loss  # noqa: E731
    return trained(model, batch, loss, amp=torch.float16, scaler=True, clip=1.0)


@script
def neox_fused():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, intermediate_size=4096)
    model = GPTNeoXForCausalLM(config).cuda()
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(50000, 8, 2048), language, amp=torch.bfloat16, optimizer=fused)


@script
def vit_hf_tf32():
    from transformers import ViTConfig, ViTForImageClassification

    torch.backends.cuda.matmul.allow_tf32 = True
    model = ViTForImageClassification(ViTConfig(num_labels=100)).cuda()
    batch = pictures(64, 224, 100)
    return trained(model, batch, lambda m, b: m(pixel_values=b[0], labels=b[1]).loss)


@script
def qwen_experts():
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=32000, hidden_size=1024, moe_intermediate_size=512, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=4, head_dim=64, num_experts=32, num_experts_per_tok=4, intermediate_size=2048,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config).cuda().to(torch.bfloat16)
    return trained(model, words(32000, 4, 2048), language)


@script
def clip_bf16():
    from transformers import CLIPConfig, CLIPModel

    model = CLIPModel(CLIPConfig()).cuda()
    batch = pictures(256, 224)[0], words(49000, 256, 77)
    loss = lambda m, b: m(pixel_values=b[0], input_ids=b[1], return_loss=True).loss  # noqa: E731
    return trained(model, batch, loss, amp=torch.bfloat16)


@script
def llama_compiled():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=16,
    )  # fmt: skip
    model = torch.compile(LlamaForCausalLM(config).cuda().to(torch.bfloat16))
    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return trained(model, words(64000, 4, 4096), language, optimizer=fused, clip=1.0)


@script
def encoder_fp32():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(20000, 512), nn.TransformerEncoder(layer, 6), nn.Linear(512, 20000)).cuda()
    return trained(model, words(20000, 32, 257), next_word)


@script
def temporal_bf16():
    class Temporal(nn.Module):
        def __init__(self, wide, dilation):
            super().__init__()
            self.a = nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation)
            self.b, self.norm = nn.Conv1d(wide, wide, 1), nn.BatchNorm1d(wide)

        def forward(self, x):
            return x + self.b(F.relu(self.norm(self.a(x))))

    model = nn.Sequential(
        nn.Conv1d(40, 512, 5, padding=2), *(Temporal(512, 1 << n % 6) for n in range(12)), nn.Conv1d(512, 48, 1)
    ).cuda()
    batch = torch.randn(32, 40, 2000, device="cuda"), torch.randint(0, 48, (32, 2000), device="cuda")
    return trained(model, batch, segmented, amp=torch.bfloat16)


# ---- predicted once, measured once


@script
def regnet_bf16_last():
    class Grouped(nn.Module):
        def __init__(self, inner, out, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                nn.Conv2d(out, out, 3, stride, 1, groups=out // 56, bias=False),
                nn.BatchNorm2d(out), nn.ReLU(inplace=True),
                nn.Conv2d(out, out, 1, bias=False), nn.BatchNorm2d(out),
            )  # fmt: skip
            same = inner == out and stride == 1
            self.skip = nn.Identity() if same else nn.Conv2d(inner, out, 1, stride, bias=False)

        def forward(self, x):
            return F.relu(self.body(x) + self.skip(x), inplace=True)

    layers, inner = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)], 32
    for out, count in ((224, 2), (448, 4), (896, 8), (1232, 1)):
        for block in range(count):
            layers.append(Grouped(inner, out, 1 if block else 2))
            inner = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    model = model.to(memory_format=torch.channels_last)
    return trained(model, pictures(128, 224, last=True), classified, amp=torch.bfloat16)


@script
def swin_bf16():
    from transformers import SwinConfig, SwinForImageClassification

    model = SwinForImageClassification(SwinConfig(num_labels=100)).cuda()
    return trained(
        model, pictures(64, 224, 100), lambda m, b: m(pixel_values=b[0], labels=b[1]).loss, amp=torch.bfloat16
    )


@script
def phi_bf16():
    from transformers import Phi3Config, Phi3ForCausalLM

    config = Phi3Config(
        vocab_size=32064, hidden_size=1536, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16,
        num_key_value_heads=16, pad_token_id=0,
    )  # fmt: skip
    model = Phi3ForCausalLM(config).cuda().to(torch.bfloat16)
    return trained(model, words(32000, 4, 2048), language, clip=1.0)


@script
def opt_fp16():
    from transformers import OPTConfig, OPTForCausalLM

    model = OPTForCausalLM(
        OPTConfig(hidden_size=768, ffn_dim=3072, num_hidden_layers=12, num_attention_heads=12)
    ).cuda()
    batch = words(50000, 8, 1024), torch.ones(8, 1024, dtype=torch.int64, device="cuda")
    loss = lambda m, b: m(input_ids=b[0], attention_mask=b[1], labels=b[0]).loss  # noqa: E731
    return trained(model, batch, loss, amp=torch.float16, scaler=True)


@script
def segformer_bf16():
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=19)).cuda()
    batch = pictures(8, 512)[0], torch.randint(0, 19, (8, 512, 512), device="cuda")
    return trained(model, batch, lambda m, b: m(pixel_values=b[0], labels=b[1]).loss, amp=torch.bfloat16)


@script
def gpt_compiled_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    model = torch.compile(Gpt(wide=768, layers=12, heads=12, vocab=32000).cuda())
    return trained(model, words(32000, 8, 1025), next_word, accumulate=2)


@script
def cifar_fp32_last():
    torch.backends.cuda.matmul.allow_tf32 = True
    model = resnet((2, 2, 2, 2), 10).cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return trained(model, pictures(512, 64, 10, last=True), classified, optimizer=sgd)


@script
def video_bf16():
    layers, inner = [nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(64), nn.ReLU()], 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [nn.Conv3d(inner, out, 3, stride, 1, bias=False), nn.BatchNorm3d(out), nn.ReLU()]
        layers += [nn.Conv3d(out, out, 3, 1, 1, bias=False), nn.BatchNorm3d(out), nn.ReLU()]
        inner = out
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(inner, 400)).cuda()
    batch = torch.randn(16, 3, 16, 112, 112, device="cuda"), torch.randint(0, 400, (16,), device="cuda")
    return trained(model, batch, classified, amp=torch.bfloat16)


if __name__ == "__main__":
    forever()
