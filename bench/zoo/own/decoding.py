"""Text generation as programs: a prefill and a few steps with a cache."""

import torch
from torch import nn
from torch.nn import functional as F


class LlamaDecode(nn.Module):
    """transformers' Llama with a StaticCache: one prefill, then greedy steps. Returns the chosen ids (batch, steps)."""

    def __init__(self, prefill, steps):
        super().__init__()
        import transformers

        config = transformers.LlamaConfig(
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            vocab_size=1000,
        )
        self.model = transformers.LlamaForCausalLM(config)
        self.steps = steps
        self.length = prefill + steps

    def forward(self, input_ids):
        from transformers import StaticCache

        cache = StaticCache(config=self.model.config, max_cache_len=self.length)
        chosen, logits = [], []
        position = torch.arange(input_ids.shape[1])
        for _ in range(self.steps):
            found = self.model(input_ids, position_ids=position[None], past_key_values=cache, use_cache=True)
            logits.append(found.logits[:, -1])
            input_ids = found.logits[:, -1:].argmax(-1)
            position = position[-1:] + 1
            chosen.append(input_ids)
        return torch.cat(chosen, 1), torch.stack(logits, 1)


class Block(nn.Module):
    """Pre-norm attention with keys and values kept in buffers, and an MLP."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x, positions, mask):
        batch, count, width = x.shape
        q, k, v = (
            t.view(batch, count, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        found = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(found.transpose(1, 2).reshape(batch, count, width))
        return x + self.mlp(self.norm2(x))


class CachedGpt(nn.Module):
    """A decoder whose caches are buffers written by index_copy_: one step at given positions (tensor of int64)."""

    def __init__(self, width=128, heads=4, depth=4, length=64, vocabulary=1000):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("causal", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, ids, positions):
        x = self.embed(ids)
        mask = self.causal[None, None, positions]
        for block in self.blocks:
            x = block(x, positions, mask)
        return self.head(self.norm(x))


class GrowingGenerate(nn.Module):
    """Generation with a cache that grows by cat, and a stop condition read from the data."""

    def __init__(self, width=64, heads=4, vocabulary=100, tokens=16):
        super().__init__()
        self.heads, self.tokens = heads, tokens
        self.embed = nn.Embedding(vocabulary, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, vocabulary)

    def step(self, ids, cache):
        x = self.embed(ids)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return self.out(found.transpose(1, 2).flatten(2) + x)[:, -1], (k, v)

    def forward(self, ids):
        cache, out = None, []
        for _ in range(self.tokens):
            logits, cache = self.step(ids, cache)
            ids = logits.argmax(-1, keepdim=True)
            out.append(ids)
            if ids.item() == 0:
                break
        return torch.cat(out, 1), logits
