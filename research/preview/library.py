"""Training scripts around models and loops of public libraries: `python research/preview/library.py NAME`.

torchvision, transformers, torchaudio, torch-geometric, torchdiffeq, accelerate, Lightning, `torch.func`; random
weights. Each was predicted once, before its kernels had been seen, and then measured once (`real.py`).
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))  # as a script and as a module of the studies alike
from loop import classified, forever, language, pictures, script, trained, words
from zoo import Gpt

# ---- torchvision


@script
def maxvit_bf16():
    from torchvision.models import maxvit_t

    return trained(maxvit_t(weights=None).cuda(), pictures(48, 224), classified, amp=torch.bfloat16, clip=1.0)


@script
def raft_tf32():
    from torchvision.models.optical_flow import raft_small

    torch.backends.cuda.matmul.allow_tf32 = True
    one, two = (torch.rand(6, 3, 368, 496, device="cuda") * 2 - 1 for _ in range(2))
    flow = torch.randn(6, 2, 368, 496, device="cuda")

    def loss(model, _):
        found = model(one, two, num_flow_updates=12)
        return sum(0.8 ** (len(found) - n - 1) * (each - flow).abs().mean() for n, each in enumerate(found))

    return trained(raft_small(weights=None).cuda(), None, loss, clip=1.0)


@script
def mvit_fp16():
    from torchvision.models.video import mvit_v2_s

    clips = torch.randn(8, 3, 16, 224, 224, device="cuda"), torch.randint(0, 400, (8,), device="cuda")
    return trained(mvit_v2_s(weights=None).cuda(), clips, classified, amp=torch.float16, scaler=True)


@script
def fcos_fp32():
    from torchvision.models.detection import fcos_resnet50_fpn

    model = fcos_resnet50_fpn(weights=None, weights_backbone=None, min_size=640, max_size=640).cuda()
    images = [torch.rand(3, 640, 640, device="cuda") for _ in range(4)]
    corner = torch.rand(4, 12, 2, device="cuda") * 400
    boxes = torch.cat([corner, corner + 20 + 200 * torch.rand(4, 12, 2, device="cuda")], -1)
    targets = [{"boxes": each, "labels": torch.randint(1, 91, (12,), device="cuda")} for each in boxes]
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return trained(model, None, lambda m, _: sum(m(images, targets).values()), optimizer=sgd)


@script
def resnext_tf32():
    from torchvision.models import resnext50_32x4d

    torch.backends.cuda.matmul.allow_tf32 = True
    model = resnext50_32x4d(weights=None).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return trained(model, pictures(96, 224), classified, optimizer=sgd)


@script
def vit_compiled_bf16():
    from torchvision.models import vit_b_16

    model = torch.compile(vit_b_16(weights=None).cuda())
    fused = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    return trained(model, pictures(128, 224), classified, amp=torch.bfloat16, optimizer=fused)


# ---- transformers


@script
def mamba2_bf16():
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=32000, hidden_size=768, num_hidden_layers=8, num_heads=24, head_dim=64, n_groups=1, state_size=64,
        chunk_size=128,
    )  # fmt: skip
    return trained(Mamba2ForCausalLM(config).cuda().to(torch.bfloat16), words(32000, 4, 1024), language, clip=1.0)


@script
def longformer_fp16():
    from transformers import LongformerConfig, LongformerForMaskedLM

    config = LongformerConfig(
        vocab_size=32000, hidden_size=768, num_hidden_layers=8, num_attention_heads=12, intermediate_size=3072,
        attention_window=256, max_position_embeddings=2050,
    )  # fmt: skip
    return trained(
        LongformerForMaskedLM(config).cuda(), words(32000, 6, 2048), language, amp=torch.float16, scaler=True
    )


@script
def modernbert_bf16():
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(vocab_size=50368, num_hidden_layers=16, reference_compile=False)
    return trained(ModernBertForMaskedLM(config).cuda(), words(50000, 24, 512), language, amp=torch.bfloat16)


@script
def dac_fp32():
    from transformers import DacConfig, DacModel

    model = DacModel(DacConfig(n_codebooks=6)).cuda()
    sound = torch.randn(8, 1, 32000, device="cuda")

    def loss(model, sound):
        out = model(sound)
        return F.l1_loss(out.audio_values, sound.squeeze(1)[..., : out.audio_values.shape[-1]]) + out.loss.mean()

    return trained(model, sound, loss, clip=1.0)


@script
def patches_fp32():
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=7, context_length=512, prediction_length=96, patch_length=16, patch_stride=8, d_model=128,
        num_attention_heads=16, ffn_dim=256, num_hidden_layers=3,
    )  # fmt: skip
    batch = torch.randn(64, 512, 7, device="cuda"), torch.randn(64, 96, 7, device="cuda")
    loss = lambda m, b: m(past_values=b[0], future_values=b[1]).loss  # noqa: E731
    return trained(PatchTSTForPrediction(config).cuda(), batch, loss)


@script
def deformable_fp32():
    from transformers import DeformableDetrConfig, DeformableDetrModel, ResNetConfig

    config = DeformableDetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone_config=ResNetConfig(
        out_features=["stage2", "stage3", "stage4"]))  # fmt: skip
    model = DeformableDetrModel(config).cuda()
    images = torch.randn(4, 3, 512, 512, device="cuda")

    def loss(model, images):
        out = model(pixel_values=images)
        return out.last_hidden_state.square().mean() + out.intermediate_reference_points.mean()

    return trained(model, images, loss, clip=0.1)


@script
def sinks_bf16():
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(
        vocab_size=64000, hidden_size=1024, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=16,
        num_key_value_heads=4, head_dim=64, num_local_experts=16, num_experts_per_tok=4, sliding_window=128,
    )  # fmt: skip
    return trained(GptOssForCausalLM(config).cuda().to(torch.bfloat16), words(64000, 4, 1024), language, clip=1.0)


@script
def xlnet_bf16():
    from transformers import XLNetConfig, XLNetLMHeadModel

    config = XLNetConfig(vocab_size=32000, d_model=768, n_layer=12, n_head=12, d_inner=3072)
    return trained(XLNetLMHeadModel(config).cuda(), words(32000, 12, 512), language, amp=torch.bfloat16)


@script
def llava_bf16():
    """A frozen tower of pictures before a language model."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    seen = CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=224,
        patch_size=16,
    )  # fmt: skip
    said = LlamaConfig(
        vocab_size=32064, hidden_size=1536, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=12,
    )  # fmt: skip
    model = LlavaForConditionalGeneration(
        LlavaConfig(vision_config=seen, text_config=said, image_token_index=32000, image_seq_length=196)
    )
    model = model.to(torch.bfloat16).cuda()
    model.model.vision_tower.requires_grad_(False)
    tokens = words(32000, 8, 768)
    tokens[:, 4:200] = 32000
    images = torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    loss = lambda m, b: m(input_ids=b[0], pixel_values=b[1], labels=b[0]).loss  # noqa: E731
    tuned = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-5)
    return trained(model, (tokens, images), loss, optimizer=tuned, clip=1.0)


@script
def perceiver_bf16():
    from transformers import PerceiverConfig, PerceiverForMaskedLM

    config = PerceiverConfig(d_latents=1024, d_model=768, num_self_attends_per_block=12, vocab_size=262)
    tokens = words(262, 8, 2048)
    loss = lambda m, b: m(inputs=b, labels=b).loss  # noqa: E731
    return trained(PerceiverForMaskedLM(config).cuda(), tokens, loss, amp=torch.bfloat16)


# ---- sound


@script
def tacotron_fp32():
    from torchaudio.models import Tacotron2

    text, lengths = words(148, 16, 96), torch.full((16,), 96, device="cuda")
    mel, frames = torch.randn(16, 80, 120, device="cuda"), torch.full((16,), 120, device="cuda")

    def loss(model, _):
        coarse, fine, stop, _ = model(text, lengths, mel, frames)
        ends = F.binary_cross_entropy_with_logits(stop, torch.zeros_like(stop))
        return F.mse_loss(coarse, mel) + F.mse_loss(fine, mel) + ends

    return trained(Tacotron2().cuda(), None, loss, clip=1.0)


@script
def demucs_fp32():
    from torchaudio.models import hdemucs_low

    sound = torch.randn(4, 2, 110250, device="cuda"), torch.randn(4, 2, 2, 110250, device="cuda")
    return trained(hdemucs_low(["voice", "rest"]).cuda(), sound, lambda m, b: F.l1_loss(m(b[0]), b[1]))


# ---- graphs, solvers, loops of others


def graph(places=100_000, edges=1_200_000, wide=128):
    return torch.randn(places, wide, device="cuda"), torch.randint(0, places, (2, edges), device="cuda")


@script
def sage_fp32():
    from torch_geometric.nn import GraphSAGE

    x, edges = graph()
    labels = torch.randint(0, 47, (x.shape[0],), device="cuda")
    loss = lambda m, _: F.cross_entropy(m(x, edges), labels)  # noqa: E731
    model = GraphSAGE(128, 256, 3, 47, dropout=0.5).cuda()
    return trained(model, None, loss, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))


@script
def graph_transformer_fp32():
    from torch_geometric.nn import GCNConv, TransformerConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = TransformerConv(128, 32, heads=4), TransformerConv(128, 32, heads=4)
            self.last = GCNConv(128, 40)

        def forward(self, x, edges):
            return self.last(F.elu(self.two(F.elu(self.one(x, edges)), edges)), edges)

    x, edges = graph(20_000, 200_000)
    labels = torch.randint(0, 40, (x.shape[0],), device="cuda")
    return trained(Net().cuda(), None, lambda m, _: F.cross_entropy(m(x, edges), labels))


@script
def flow_ode_fp32():
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self, wide=64):
            super().__init__()
            norm = lambda: nn.GroupNorm(32, wide)  # noqa: E731
            conv = lambda: nn.Conv2d(wide, wide, 3, padding=1)  # noqa: E731
            self.body = nn.Sequential(norm(), nn.ReLU(), conv(), norm(), nn.ReLU(), conv(), norm())

        def forward(self, t, x):
            return self.body(x) + t

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.field, self.out = nn.Conv2d(3, 64, 4, 2, 1), Field(), nn.Linear(64, 10)
            self.register_buffer("times", torch.linspace(0, 1, 9))

        def forward(self, x):
            x = odeint(self.field, self.into(x), self.times, method="rk4")[-1]
            return self.out(F.relu(x).mean((2, 3)))

    sgd = lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)  # noqa: E731
    model = Net().cuda()
    return trained(model, pictures(128, 32, classes=10), classified, optimizer=sgd(model))


@script
def accelerated_bf16():
    """accelerate's loop: batches from the host, accumulation, a schedule."""
    from accelerate import Accelerator
    from transformers import GPT2Config, GPT2LMHeadModel

    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = GPT2LMHeadModel(GPT2Config(n_layer=8))
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4)
    rows = torch.randint(0, 50257, (4096, 512))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8, pin_memory=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda n: min(1.0, n / 100))
    model, adam, loader, schedule = accelerator.prepare(model, adam, loader, schedule)

    def batches():
        while True:
            yield from loader

    source = batches()

    def step():
        for _ in range(2):
            (tokens,) = next(source)
            with accelerator.accumulate(model):
                accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                adam.step()
                schedule.step()
                adam.zero_grad()

    return step


@script
def lightning_bf16():
    """Lightning's loop around torchvision's ResNet-18: batches from the host, metrics that are logged."""
    import pytorch_lightning as pl
    from torchvision.models import resnet18

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = resnet18(weights=None)

        def training_step(self, batch, _):
            images, labels = batch
            out = self.model(images)
            loss = F.cross_entropy(out, labels)
            self.log("loss", loss)
            self.log("right", (out.argmax(1) == labels).float().mean())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    rows = torch.randn(1024, 3, 160, 160), torch.randint(0, 1000, (1024,))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(*rows), batch_size=64, num_workers=2, pin_memory=True
    )
    trainer = pl.Trainer(
        max_epochs=50, accelerator="gpu", devices=1, precision="bf16-mixed", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    return lambda: trainer.fit(Net(), loader)


@script
def meta_fp32():
    """Learning to learn: gradients of a few inner steps of many tasks."""
    from torch.func import functional_call

    conv = lambda a, b: [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]  # noqa: E731
    layers = [*conv(3, 64), *conv(64, 64), *conv(64, 64), *conv(64, 64)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1600, 5)).cuda()
    shown, asked = (torch.randn(4, 25, 3, 84, 84, device="cuda") for _ in range(2))
    aim = torch.arange(25, device="cuda") % 5

    def loss(model, _):
        total = 0.0
        for one, two in zip(shown, asked, strict=True):
            fast = dict(model.named_parameters())
            for _ in range(3):
                inner = F.cross_entropy(functional_call(model, fast, one), aim)
                grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
                fast = {name: w - 0.01 * g for (name, w), g in zip(fast.items(), grads, strict=True)}
            total = total + F.cross_entropy(functional_call(model, fast, two), aim)
        return total / 4

    return trained(model, None, loss, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))


@script
def glow_fp32():
    """A normalising flow: actnorm, invertible products with their determinants, couplings."""

    class Flow(nn.Module):
        def __init__(self, wide, hidden=256):
            super().__init__()
            self.scale, self.shift = (nn.Parameter(torch.zeros(1, wide, 1, 1)) for _ in range(2))
            self.mix = nn.Parameter(torch.linalg.qr(torch.randn(wide, wide))[0])
            self.net = nn.Sequential(
                nn.Conv2d(wide // 2, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(),
                nn.Conv2d(hidden, wide, 3, padding=1),
            )  # fmt: skip

        def forward(self, x):
            pixels = x.shape[2] * x.shape[3]
            x = x * self.scale.exp() + self.shift
            log = pixels * (self.scale.sum() + torch.linalg.slogdet(self.mix)[1])
            x = F.conv2d(x, self.mix[:, :, None, None])
            a, b = x.chunk(2, 1)
            scale, shift = self.net(a).chunk(2, 1)
            scale = torch.sigmoid(scale + 2)
            return torch.cat([a, (b + shift) * scale], 1), log + scale.log().flatten(1).sum(1)

    class Glow(nn.Module):
        def __init__(self):
            super().__init__()
            self.levels = nn.ModuleList(nn.ModuleList(Flow(12 << n) for _ in range(8)) for n in range(3))

        def forward(self, x):
            total = 0.0
            for level in self.levels:
                x = F.pixel_unshuffle(x, 2)
                for flow in level:
                    x, log = flow(x)
                    total = total + log
                x, gone = x.chunk(2, 1)
                total = total - 0.5 * gone.square().flatten(1).sum(1)
            return -(total - 0.5 * x.square().flatten(1).sum(1)).mean() / 12288

    images = torch.rand(64, 3, 64, 64, device="cuda")
    return trained(Glow().cuda(), images, lambda m, b: m(b), optimizer=None, clip=1.0)


@script
def blocks_compiled_fp16():
    """Each block compiled by itself, under a scaler."""
    model = Gpt(1024, 12, 16, vocab=32000).cuda()
    for place, block in enumerate(model.blocks):
        model.blocks[place] = torch.compile(block)
    batch = words(32000, 8, 1024)
    loss = lambda m, b: F.cross_entropy(m(b).flatten(0, 1), b.roll(-1, 1).flatten())  # noqa: E731
    return trained(model, batch, loss, amp=torch.float16, scaler=True, clip=1.0)


if __name__ == "__main__":
    forever()
