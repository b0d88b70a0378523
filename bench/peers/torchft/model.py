"""The model of bench/train_run.h as a torch module: preset small-3m with the 521 tokens that the built-in text yields of the 1024 asked for.
The same shapes, and the same 2,494,976 parameters."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 521, 256, 4, 4, 2, 512
LENGTH, SEQUENCES = 64, 2  # tokens of a sequence, sequences a replica group and step
ROTARY_BASE = 10000.0
HEAD = WIDTH // HEADS


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


def linear(wide, out):
    return nn.Linear(wide, out, bias=False)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = Norm(), Norm()
        self.query, self.output = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.key, self.value = linear(WIDTH, KV_HEADS * HEAD), linear(WIDTH, KV_HEADS * HEAD)
        self.gate, self.up = linear(WIDTH, FEED_FORWARD), linear(WIDTH, FEED_FORWARD)
        self.down = linear(FEED_FORWARD, WIDTH)

    def attend(self, x, rotate):
        batch, length, _ = x.shape

        def split(joined):
            return joined.view(batch, length, -1, HEAD).transpose(1, 2)

        query, key, value = rotate(split(self.query(x))), rotate(split(self.key(x))), split(self.value(x))
        key, value = (shared.repeat_interleave(HEADS // KV_HEADS, 1) for shared in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x, rotate):
        x = x + self.attend(self.attention_norm(x), rotate)
        h = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    """Tokens and targets [B, T] to the mean loss. The head is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        nn.init.normal_(self.embedding.weight, std=0.02)
        frequencies = ROTARY_BASE ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.outer(torch.arange(LENGTH), torch.cat([frequencies, frequencies]))
        self.cosine, self.sine = angles.cos(), angles.sin()  # not buffers: DDP would send them round in each step

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-high, low], -1) * self.sine

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.rotate)
        return F.cross_entropy(F.linear(self.norm(x), self.embedding.weight).flatten(0, 1), targets.flatten())


def batch(step, group):
    """Tokens and targets, a function of both numbers; x' = 5 x + 3 + noise, so that there is something to learn."""
    random = torch.Generator().manual_seed(1009 * step + group)
    tokens = torch.empty(SEQUENCES, LENGTH + 1, dtype=torch.long)
    tokens[:, 0] = torch.randint(VOCABULARY, (SEQUENCES,), generator=random)
    noise = torch.randint(4, (SEQUENCES, LENGTH), generator=random)
    for at in range(LENGTH):
        tokens[:, at + 1] = (5 * tokens[:, at] + 3 + noise[:, at]) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]
