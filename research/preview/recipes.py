"""Training recipes on one GPU that are more than one model and one loss: `python research/preview/recipes.py NAME`.

Teachers, preferences, contrast, rewards, averaged weights, two passes a step; spectra, state spaces, points, patches.
Each was predicted once, before its kernels had been seen, and then measured once (`real.py`).
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

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from loop import classified, forever, language, pictures, script, trained, words
from zoo import Gpt, next_word, resnet

# ---- pictures


@script
def densenet_bf16_last():
    class Dense(nn.Module):
        def __init__(self, inner, grow=32):
            super().__init__()
            self.body = nn.Sequential(
                nn.BatchNorm2d(inner), nn.ReLU(inplace=True), nn.Conv2d(inner, 4 * grow, 1, bias=False),
                nn.BatchNorm2d(4 * grow), nn.ReLU(inplace=True), nn.Conv2d(4 * grow, grow, 3, padding=1, bias=False),
            )  # fmt: skip

        def forward(self, x):
            return torch.cat([x, self.body(x)], 1)

    layers, inner = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):
            layers.append(Dense(inner))
            inner += 32
        if stage < 3:
            layers += [nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, inner // 2, 1, bias=False), nn.AvgPool2d(2)]
            inner //= 2
    tail = [nn.BatchNorm2d(inner), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)]
    model = nn.Sequential(*layers, *tail).cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return trained(model, pictures(128, 224, last=True), classified, amp=torch.bfloat16, optimizer=sgd)


@script
def shuffled_fp16():
    class Unit(nn.Module):
        def __init__(self, wide):
            super().__init__()
            one = lambda: nn.Sequential(nn.Conv2d(wide, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())
            deep = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False)
            self.body = nn.Sequential(one(), deep, nn.BatchNorm2d(wide), one())

        def forward(self, x):
            a, b = x.chunk(2, 1)
            x = torch.cat([a, self.body(b)], 1)
            n, c, h, w = x.shape
            return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    layers, inner = [nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 24
    for wide, depth in ((176, 3), (352, 7), (704, 3)):
        layers += [nn.Conv2d(inner, wide, 3, 2, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU()]
        layers += [Unit(wide // 2) for _ in range(depth)]
        inner = wide
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).cuda()
    return trained(model, pictures(256, 224), classified, amp=torch.float16, scaler=True)


@script
def mixer_averaged_bf16():
    """An MLP-Mixer with mixed labels and an exponential average of its weights."""

    class Mixer(nn.Module):
        def __init__(self, wide=768, places=196):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(2))
            self.across = nn.Sequential(nn.Linear(places, 384), nn.GELU(), nn.Linear(384, places))
            self.along = nn.Sequential(nn.Linear(wide, 3072), nn.GELU(), nn.Linear(3072, wide))

        def forward(self, x):
            x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
            return x + self.along(self.norms[1](x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.body = nn.Conv2d(3, 768, 16, 16), nn.Sequential(*(Mixer() for _ in range(12)))
            self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000)

        def forward(self, x):
            return self.head(self.norm(self.body(self.cut(x).flatten(2).transpose(1, 2))).mean(1))

    model = Net().cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    images, labels = pictures(128, 224)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)

    def step():
        other = torch.randperm(128, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(0.7 * images + 0.3 * images[other])
            smooth = 0.7 * F.cross_entropy(out, labels, label_smoothing=0.1)
            loss = smooth + 0.3 * F.cross_entropy(out, labels[other], label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)

    return step


@script
def contrasted_tf32():
    """SimCLR: two views, normalised projections, similarities of all pairs."""
    torch.backends.cuda.matmul.allow_tf32 = True
    body = resnet(classes=2048)
    model = nn.Sequential(body, nn.ReLU(), nn.Linear(2048, 128)).cuda()
    views = torch.randn(128, 3, 160, 160, device="cuda")
    own = torch.eye(128, dtype=torch.bool, device="cuda")
    target = (torch.arange(128, device="cuda") + 64) % 128

    def loss(model, views):
        z = F.normalize(model(views), dim=1)
        return F.cross_entropy((z @ z.T / 0.1).masked_fill(own, float("-inf")), target)

    sgd = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-4)
    return trained(model, views, loss, optimizer=sgd)


@script
def codebook_bf16():
    """A VQ-VAE: distances to a codebook, straight-through gradients."""

    class Coder(nn.Module):
        def __init__(self, wide=256, codes=1024):
            super().__init__()
            res = lambda: nn.Sequential(
                nn.ReLU(), nn.Conv2d(wide, wide, 3, padding=1), nn.ReLU(), nn.Conv2d(wide, wide, 1)
            )
            self.into = nn.Sequential(nn.Conv2d(3, wide // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(wide // 2, wide, 4, 2, 1))
            self.body, self.back = nn.ModuleList(res() for _ in range(4)), nn.ModuleList(res() for _ in range(4))
            self.codes = nn.Embedding(codes, wide)
            up = nn.ConvTranspose2d
            self.out = nn.Sequential(up(wide, wide // 2, 4, 2, 1), nn.ReLU(), up(wide // 2, 3, 4, 2, 1))

        def forward(self, images):
            x = self.into(images)
            for block in self.body:
                x = x + block(x)
            flat = x.permute(0, 2, 3, 1).reshape(-1, x.shape[1]).float()
            near = torch.cdist(flat, self.codes.weight).argmin(1)
            code = self.codes(near).view(x.shape[0], x.shape[2], x.shape[3], -1).permute(0, 3, 1, 2)
            kept = F.mse_loss(code, x.detach()) + 0.25 * F.mse_loss(x, code.detach())
            x = x + (code - x).detach()
            for block in self.back:
                x = x + block(x)
            return F.mse_loss(self.out(x), images) + kept

    images = torch.rand(64, 3, 128, 128, device="cuda")
    return trained(Coder().cuda(), images, lambda m, b: m(b), amp=torch.bfloat16)


@script
def style_fp32():
    """Convolutions whose weights each picture modulates: one group a picture."""

    class Styled(nn.Module):
        def __init__(self, inner, out):
            super().__init__()
            self.weight, self.style = nn.Parameter(torch.randn(out, inner, 3, 3)), nn.Linear(512, inner)

        def forward(self, x, w):
            n, c, h, wide = x.shape
            weight = self.weight * self.style(w)[:, None, :, None, None]
            weight = weight * weight.square().sum((2, 3, 4), keepdim=True).add(1e-8).rsqrt()
            x = F.conv2d(x.reshape(1, n * c, h, wide), weight.flatten(0, 1), padding=1, groups=n)
            return F.leaky_relu(x.view(n, -1, h, wide), 0.2)

    class Maker(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(512, 512), nn.LeakyReLU(0.2))))
            self.start, widths = nn.Parameter(torch.randn(1, 512, 8, 8)), (512, 512, 256, 128, 64)
            pairs = itertools.pairwise(widths)
            self.layers = nn.ModuleList(nn.ModuleList([Styled(a, b), Styled(b, b)]) for a, b in pairs)
            self.last = nn.Conv2d(64, 3, 1)

        def forward(self, z):
            w, x = self.map(z), self.start.expand(z.shape[0], -1, -1, -1)
            for one, two in self.layers:
                x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
                x = two(one(x, w), w)
            return self.last(x)

    batch = torch.randn(16, 512, device="cuda"), torch.rand(16, 3, 128, 128, device="cuda")
    return trained(Maker().cuda(), batch, lambda m, b: F.l1_loss(m(b[0]), b[1]))


@script
def sharpness_twice_bf16_last():
    """Sharpness-aware minimisation: two passes a step, weights moved and moved back."""
    model = resnet((2, 2, 2, 2), classes=100).cuda().to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = pictures(128, 160, classes=100, last=True)
    weights = list(model.parameters())

    def passed():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()

    def step():
        passed()
        with torch.no_grad():
            norm = torch.stack([w.grad.norm() for w in weights]).norm()
            moves = [w.grad * (0.05 / (norm + 1e-12)) for w in weights]
            for w, move in zip(weights, moves, strict=True):
                w.add_(move)
        sgd.zero_grad()
        passed()
        with torch.no_grad():
            for w, move in zip(weights, moves, strict=True):
                w.sub_(move)
        sgd.step()
        sgd.zero_grad()

    return step


# ---- words


@script
def preferred_bf16():
    """Direct preference optimisation: a policy, a frozen reference, pairs of answers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=10, num_attention_heads=16,
        num_key_value_heads=4,
    )  # fmt: skip
    policy = LlamaForCausalLM(config).cuda().to(torch.bfloat16)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    tokens = words(32000, 8, 1024)

    def likely(model):
        logits = model(input_ids=tokens).logits[:, :-1].float().log_softmax(-1)
        return logits.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)

    def loss(model, _):
        with torch.no_grad():
            held = likely(reference)
        good, bad = (likely(model) - held).chunk(2)
        return -F.logsigmoid(0.1 * (good - bad)).mean()

    return trained(policy, None, loss, clip=1.0)


@script
def distilled_bf16():
    teacher, student = Gpt(1024, 16, 16).cuda().bfloat16().eval().requires_grad_(False), Gpt(768, 6, 12).cuda()
    tokens = words(50304, 8, 1024)

    def loss(model, tokens):
        with torch.no_grad():
            aim = (teacher(tokens).float() / 2).softmax(-1)
        out = model(tokens)
        soft = F.kl_div((out.float() / 2).log_softmax(-1), aim, reduction="batchmean") * 4 / 1024
        return soft + F.cross_entropy(out[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return trained(student, tokens, loss, amp=torch.bfloat16)


@script
def translated_bf16():
    """nn.Transformer with masks of padding and causality."""

    class Translator(nn.Module):
        def __init__(self, wide=512, vocab=32000):
            super().__init__()
            self.words, self.head = nn.Embedding(vocab, wide), nn.Linear(wide, vocab)
            self.body = nn.Transformer(wide, 8, 6, 6, 2048, dropout=0.1, batch_first=True)

        def forward(self, source, target, padded):
            causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
            kinds = {"src_key_padding_mask": padded, "memory_key_padding_mask": padded}
            return self.head(self.body(self.words(source), self.words(target), tgt_mask=causal, **kinds))

    source, target = words(32000, 64, 128), words(32000, 64, 129)
    padded = torch.arange(128, device="cuda")[None] >= torch.randint(64, 128, (64, 1), device="cuda")

    def loss(model, batch):
        out = model(source, target[:, :-1], padded)
        return F.cross_entropy(out.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)

    return trained(Translator().cuda(), None, loss, amp=torch.bfloat16)


@script
def latent_experts_bf16():
    """DeepSeek's latent attention and shared experts, from transformers."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = DeepseekV3Config(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, moe_intermediate_size=512, num_hidden_layers=8,
        num_attention_heads=16, num_key_value_heads=16, n_routed_experts=32, num_experts_per_tok=4, n_group=4,
        topk_group=2, q_lora_rank=512, kv_lora_rank=256, qk_rope_head_dim=32, qk_nope_head_dim=64, v_head_dim=64,
        first_k_dense_replace=1,
    )  # fmt: skip
    return trained(DeepseekV3ForCausalLM(config).cuda().to(torch.bfloat16), words(32000, 4, 2048), language, clip=1.0)


@script
def nearby_fp16():
    """Attention in windows with a learnt bias of distances, written out."""

    class Near(nn.Module):
        def __init__(self, wide=768, heads=12, window=256):
            super().__init__()
            self.heads, self.window = heads, window
            self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
            self.bias = nn.Parameter(torch.zeros(heads, window, 2 * window))
            self.norms = nn.ModuleList(nn.LayerNorm(wide) for _ in range(2))
            self.mlp = nn.Sequential(nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norms[0](x)).chunk(3, -1))
            n = t // self.window
            q = q.reshape(b, self.heads, n, self.window, -1)
            k, v = (F.pad(y, (0, 0, self.window, 0)).unfold(2, 2 * self.window, self.window) for y in (k, v))
            score = q @ k / math.sqrt(q.shape[-1]) + self.bias[:, None]
            mixed = score.softmax(-1).to(v.dtype) @ v.transpose(-1, -2)
            x = x + self.out(mixed.reshape(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, c))
            return x + self.mlp(self.norms[1](x))

    model = Gpt(768, 0, 12)
    model.places = nn.Embedding(4096, 768)
    model.blocks = nn.ModuleList(Near() for _ in range(8))
    return trained(
        model.cuda(), words(50304, 4, 4096), lambda m, b: classified_words(m, b), amp=torch.float16, scaler=True
    )


def classified_words(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())


@script
def scanned_bf16():
    """A selective state space in chunks: decays, cumulative sums, products within and between chunks."""

    class Space(nn.Module):
        def __init__(self, wide=1024, heads=16, state=64, chunk=64):
            super().__init__()
            self.heads, self.state, self.chunk, inner = heads, state, chunk, 2 * wide
            self.norm, self.inner = nn.LayerNorm(wide), inner
            self.into = nn.Linear(wide, 2 * inner + 2 * state + heads, bias=False)
            self.conv = nn.Conv1d(inner + 2 * state, inner + 2 * state, 4, padding=3, groups=inner + 2 * state)
            self.decay, self.out = nn.Parameter(torch.zeros(heads)), nn.Linear(inner, wide, bias=False)

        def forward(self, x):
            b, t, _ = x.shape
            sizes = [self.inner, self.inner + 2 * self.state, self.heads]
            gate, both, dt = self.into(self.norm(x)).split(sizes, -1)
            both = F.silu(self.conv(both.transpose(1, 2))[..., :t].transpose(1, 2))
            v, k, q = both.split([self.inner, self.state, self.state], -1)
            cut = lambda y: y.reshape(b, t // self.chunk, self.chunk, *y.shape[2:])
            dt = F.softplus(dt.float())
            v = cut(v.reshape(b, t, self.heads, -1) * dt[..., None].to(v.dtype))
            k, q = cut(k), cut(q)
            fall = cut(-dt * self.decay.exp()).cumsum(2)
            inside = (
                (fall[:, :, :, None] - fall[:, :, None]).masked_fill(self.later[None, None, :, :, None], -1e9).exp()
            )
            score = torch.einsum("bnis,bnjs->bnij", q, k)[..., None] * inside.to(q.dtype)
            near = torch.einsum("bnijh,bnjhd->bnihd", score, v)
            rest = (fall[:, :, -1:] - fall).exp().to(v.dtype)
            states, held, kept = torch.einsum("bnjs,bnjh,bnjhd->bnhsd", k, rest, v), 0.0, []
            for n in range(states.shape[1]):
                kept.append(held if n else torch.zeros_like(states[:, 0]))
                held = states[:, n] + (fall[:, n, -1].exp()[..., None, None].to(v.dtype) * held if n else 0.0)
            far = torch.einsum("bnis,bnhsd,bnih->bnihd", q, torch.stack(kept, 1), fall.exp().to(q.dtype))
            return x + self.out((near + far).reshape(b, t, -1) * F.silu(gate))

    Space.later = torch.ones(64, 64, dtype=torch.bool, device="cuda").triu(1)
    model = Gpt(1024, 0, 16, vocab=32000, length=2048)
    model.blocks = nn.ModuleList(Space() for _ in range(6))
    return trained(model.cuda(), words(32000, 2, 2048), classified_words, amp=torch.bfloat16)


@script
def gpt_compiled_bf16_accumulated():
    model = Gpt(1280, 12, 20).cuda()
    fast = torch.compile(model)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    batch = words(50304, 8, 1025)
    return trained(fast, batch, next_word, amp=torch.bfloat16, accumulate=2, clip=1.0, optimizer=adam)


@script
def lion_by_hand_bf16():
    """A causal model with an optimizer written as a loop over parameters."""
    model = Gpt(1024, 12, 16).cuda().bfloat16()
    weights = list(model.parameters())
    moments = [torch.zeros_like(w) for w in weights]

    class Lion(torch.optim.Optimizer):
        def __init__(self):
            super().__init__(weights, {"lr": 1e-4})

        @torch.no_grad()
        def step(self):
            for w, m in zip(weights, moments, strict=True):
                w.mul_(1 - 1e-5).add_((0.9 * m + 0.1 * w.grad).sign(), alpha=-1e-4)
                m.mul_(0.99).add_(w.grad, alpha=0.01)

    return trained(model, words(50304, 8, 1025), next_word, optimizer=Lion())


# ---- other


@script
def operators_fp32():
    """A Fourier neural operator on a plane."""

    class Spectral(nn.Module):
        def __init__(self, wide=64, modes=32):
            super().__init__()
            self.modes = modes
            self.low = nn.Parameter(torch.randn(2, wide, wide, modes, modes, dtype=torch.cfloat) / wide)
            self.here = nn.Conv2d(wide, wide, 1)

        def forward(self, x):
            m, f = self.modes, torch.fft.rfft2(x)
            out = torch.zeros_like(f)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.low[0])
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], self.low[1])
            return F.gelu(torch.fft.irfft2(out, s=x.shape[-2:]) + self.here(x))

    model = nn.Sequential(nn.Conv2d(3, 64, 1), *(Spectral() for _ in range(4)), nn.Conv2d(64, 1, 1)).cuda()
    batch = torch.randn(16, 3, 256, 256, device="cuda"), torch.randn(16, 1, 256, 256, device="cuda")
    return trained(model, batch, lambda m, b: (m(b[0]) - b[1]).flatten(1).norm(dim=1).mean())


@script
def points_fp32():
    """PointNet++: nearest neighbours, gathered features, maxima."""

    class Grouped(nn.Module):
        def __init__(self, inner, out, keep):
            super().__init__()
            self.keep = keep
            one = lambda a, b: [nn.Conv2d(a, b, 1), nn.BatchNorm2d(b), nn.ReLU()]
            self.body = nn.Sequential(*one(inner + 3, out // 2), *one(out // 2, out))

        def forward(self, places, x):
            centres = places[:, : self.keep]
            near = torch.cdist(centres, places).topk(32, largest=False).indices
            pick = lambda y: y.gather(1, near.flatten(1)[..., None].expand(-1, -1, y.shape[-1])).unflatten(
                1, near.shape[1:]
            )
            around = torch.cat([pick(places) - centres[:, :, None], pick(x)], -1)
            return centres, self.body(around.permute(0, 3, 1, 2)).amax(-1).transpose(1, 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.last = Grouped(3, 128, 512), Grouped(128, 256, 128), nn.Linear(256, 40)

        def forward(self, places):
            return self.last(self.two(*self.one(places, places))[1].amax(1))

    batch = torch.randn(32, 2048, 3, device="cuda"), torch.randint(0, 40, (32,), device="cuda")
    return trained(Net().cuda(), batch, classified)


@script
def rewarded_fp32():
    """Proximal policy optimisation on kept roll-outs: small layers, many launches."""
    body = lambda out: nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, out))
    actor, critic = body(8).cuda(), body(1).cuda()
    both = nn.ModuleList([actor, critic])
    seen, done = torch.randn(32768, 64, device="cuda"), torch.randint(0, 8, (32768,), device="cuda")
    old, gain, aim = (torch.randn(32768, device="cuda") for _ in range(3))

    def loss(_, __):
        pick = torch.randint(0, 32768, (4096,), device="cuda")
        policy = torch.distributions.Categorical(logits=actor(seen[pick]))
        ratio = (policy.log_prob(done[pick]) - old[pick]).exp()
        better = (gain[pick] - gain[pick].mean()) / (gain[pick].std() + 1e-8)
        least = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
        return F.mse_loss(critic(seen[pick]).squeeze(-1), aim[pick]) - least - 0.01 * policy.entropy().mean()

    return trained(both, None, loss, clip=0.5, optimizer=torch.optim.Adam(both.parameters(), lr=3e-4, eps=1e-5))


@script
def forecast_fp16():
    """A ConvLSTM over frames of radar."""

    class Cell(nn.Module):
        def __init__(self, inner, wide=64):
            super().__init__()
            self.gates, self.wide = nn.Conv2d(inner + wide, 4 * wide, 3, padding=1), wide

        def forward(self, frames):
            b, t, _, h, w = frames.shape
            hidden = cell = frames.new_zeros(b, self.wide, h, w)
            outs = []
            for n in range(t):
                i, f, o, g = self.gates(torch.cat([frames[:, n], hidden], 1)).chunk(4, 1)
                cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
                hidden = o.sigmoid() * cell.tanh()
                outs.append(hidden)
            return torch.stack(outs, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.last = Cell(1), Cell(64), nn.Conv3d(64, 1, 1)

        def forward(self, x):
            return self.last(self.two(self.one(x)).transpose(1, 2)).transpose(1, 2)

    batch = torch.rand(16, 10, 1, 64, 64, device="cuda"), torch.rand(16, 10, 1, 64, 64, device="cuda")
    return trained(Net().cuda(), batch, lambda m, b: F.mse_loss(m(b[0]), b[1]), amp=torch.float16, scaler=True)


@script
def tables_adagrad():
    """Categories and numbers of a table: many embeddings, attention over features."""

    class Table(nn.Module):
        def __init__(self, wide=192, kinds=32, numbers=32):
            super().__init__()
            self.kinds = nn.ModuleList(nn.Embedding(10_000, wide) for _ in range(kinds))
            self.scale, self.shift = (nn.Parameter(torch.randn(numbers, wide)) for _ in range(2))
            one = nn.TransformerEncoderLayer(wide, 8, 512, 0.1, batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(one, 3, enable_nested_tensor=False), nn.Linear(wide, 1)

        def forward(self, kinds, numbers):
            a = torch.stack([table(kinds[:, n]) for n, table in enumerate(self.kinds)], 1)
            x = torch.cat([a, numbers[..., None] * self.scale + self.shift], 1)
            return self.head(self.body(x)[:, 0]).squeeze(-1)

    model = Table().cuda()
    batch = torch.randint(0, 10_000, (1024, 32), device="cuda"), torch.randn(1024, 32, device="cuda")
    aim = torch.rand(1024, device="cuda").round()
    loss = lambda m, b: F.binary_cross_entropy_with_logits(m(*b), aim)
    return trained(model, batch, loss, optimizer=torch.optim.Adagrad(model.parameters(), lr=0.01))


@script
def detected_tf32():
    """A detector with queries: a backbone, an encoder and a decoder."""
    torch.backends.cuda.matmul.allow_tf32 = True

    class Net(nn.Module):
        def __init__(self, wide=256):
            super().__init__()
            self.back, self.thin = nn.Sequential(*list(resnet())[:-3]), nn.Conv2d(2048, wide, 1)
            self.body = nn.Transformer(wide, 8, 6, 6, 2048, dropout=0.1, batch_first=True)
            self.asked, self.places = nn.Parameter(torch.randn(100, wide)), nn.Parameter(torch.randn(400, wide))
            self.kind, self.box = (
                nn.Linear(wide, 92),
                nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 4)),
            )

        def forward(self, images):
            x = self.thin(self.back(images)).flatten(2).transpose(1, 2) + self.places
            x = self.body(x, self.asked.expand(x.shape[0], -1, -1))
            return self.kind(x), self.box(x).sigmoid()

    aims = torch.randint(0, 92, (4, 100), device="cuda"), torch.rand(4, 100, 4, device="cuda")

    def loss(model, images):
        kind, box = model(images)
        return F.cross_entropy(kind.flatten(0, 1), aims[0].flatten()) + 5 * F.l1_loss(box, aims[1])

    return trained(Net().cuda(), torch.randn(4, 3, 640, 640, device="cuda"), loss, clip=0.1)


if __name__ == "__main__":
    forever()
