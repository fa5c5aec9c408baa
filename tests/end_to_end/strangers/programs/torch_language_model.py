"""A small transformer that learns random tokens, as GPT-2 does: embedding, causal attention, AdamW."""

import hashlib
import sys
import time

import torch
from torch import nn

torch.manual_seed(1)
width, vocabulary, length = 128, 1000, 64
embed = nn.Embedding(vocabulary, width)
layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
head = nn.Linear(width, vocabulary)
parameters = [*embed.parameters(), *body.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
mask = nn.Transformer.generate_square_subsequent_mask(length)
for step in range(int(sys.argv[1])):
    tokens = torch.randint(vocabulary, (8, length + 1))
    logits = head(body(embed(tokens[:, :-1]), mask=mask, is_causal=True))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "at", time.monotonic_ns(), file=sys.stderr, flush=True)
digest = hashlib.sha256()
for parameter in parameters:
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
