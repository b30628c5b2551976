"""PyTorch definitions of models that have no public one, or not with torch, torchvision, timm or transformers
alone. Written from the papers, plainly; compare.py judges the built-in models by them."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def grouped(constructor):
    """A torchvision EfficientNet with groups of 16 channels, widening by 4 (arXiv 2106.03640)."""
    from torchvision.models import efficientnet

    widths = {6: 4, 1: 1}
    original = efficientnet.MBConvConfig.__init__

    def narrower(self, ratio, *args, **kwargs):
        original(self, widths[ratio], *args, **kwargs)

    efficientnet.MBConvConfig.__init__ = narrower
    try:
        model = constructor()
    finally:
        efficientnet.MBConvConfig.__init__ = original
    for module in model.modules():
        for name, conv in module.named_children():
            if isinstance(conv, nn.Conv2d) and conv.groups > 1:
                channels = conv.in_channels
                groups = channels // math.gcd(channels, 16)
                replacement = nn.Conv2d(
                    channels, channels, conv.kernel_size, conv.stride, conv.padding, groups=groups, bias=False
                )
                nn.init.kaiming_normal_(replacement.weight, mode="fan_out")
                setattr(module, name, replacement)
    return model


class Recurrent(nn.Module):
    def __init__(self, kind, hidden, layers):
        super().__init__()
        self.rnn = kind(hidden, hidden, layers, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


def sinusoids(length, width):
    """Sines in even columns, cosines in odd ones."""
    position = torch.arange(length).float()[:, None]
    frequency = torch.exp(torch.arange(0, width, 2).float() * -(math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table


def attention(q, k, v, heads):
    """Of [B, S, H*D]."""

    def split(x):
        return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    return F.scaled_dot_product_attention(split(q), split(k), split(v)).transpose(1, 2).flatten(2)


# Deep Voice 3 -------------------------------------------------------------------------------------------------


class GatedBlock(nn.Module):
    def __init__(self, channels, causal):
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 5)
        self.pads = (4, 0) if causal else (2, 2)

    def forward(self, x):
        y = F.glu(self.conv(F.pad(x.transpose(1, 2), self.pads)), dim=1)
        return (y.transpose(1, 2) + x) * math.sqrt(0.5)


class VoiceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(149, 256)
        self.input = nn.Linear(256, 64)
        self.blocks = nn.ModuleList(GatedBlock(64, False) for _ in range(7))
        self.output = nn.Linear(64, 256)

    def forward(self, text):
        embedded = self.embedding(text)
        x = self.input(embedded)
        for block in self.blocks:
            x = block(x)
        keys = self.output(x)
        return keys, (keys + embedded) * math.sqrt(0.5)


class VoiceAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(256, 128) for _ in range(3))
        self.output = nn.Linear(128, 256)

    def forward(self, x, keys, values):
        placed = x + sinusoids(x.shape[1], 256)
        context = attention(self.query(placed), self.key(keys), self.value(values), 1)
        return (self.output(context) + x) * math.sqrt(0.5)


class VoiceDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.prenet = nn.ModuleList([nn.Linear(320, 128), nn.Linear(128, 256)])
        self.blocks = nn.ModuleList(GatedBlock(256, True) for _ in range(4))
        self.attentions = nn.ModuleList(VoiceAttention() for _ in range(4))
        self.mel, self.done = nn.Linear(256, 320), nn.Linear(256, 1)

    def forward(self, frames, keys, values):
        x = frames
        for layer in self.prenet:
            x = torch.relu(layer(x))
        keys = keys + sinusoids(keys.shape[1], 256)
        for block, attend in zip(self.blocks, self.attentions):
            x = attend(block(x), keys, values)
        return x


class VoiceConverter(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(64, 256)
        self.blocks = nn.ModuleList(GatedBlock(256, False) for _ in range(5))
        self.output = nn.Linear(256, 513)

    def forward(self, hidden):
        x = self.input(hidden.reshape(hidden.shape[0], -1, 64))
        for block in self.blocks:
            x = block(x)
        return self.output(x)


class DeepVoice(nn.Module):
    """After Deep Voice 3 (arXiv 1710.07654): all frames at once, four to a decoder step."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder, self.converter = VoiceEncoder(), VoiceDecoder(), VoiceConverter()

    def forward(self, text, frames):
        hidden = self.decoder(frames, *self.encoder(text))
        return self.decoder.mel(hidden), torch.sigmoid(self.decoder.done(hidden)), self.converter(hidden)


# FastSpeech 2 -------------------------------------------------------------------------------------------------


class SpeechBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(256, 256) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
        self.conv1 = nn.Conv1d(256, 1024, 9, padding=4)
        self.conv2 = nn.Conv1d(1024, 256, 1)

    def forward(self, x):
        x = self.norm1(self.output(attention(self.query(x), self.key(x), self.value(x), 2)) + x)
        y = self.conv2(torch.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(y + x)


class SpeechTransformer(nn.Module):
    def __init__(self, layers, rows=None):
        super().__init__()
        if rows:
            self.embedding = nn.Embedding(rows, 256)
        self.layers = nn.ModuleList(SpeechBlock() for _ in range(layers))

    def forward(self, x):
        if hasattr(self, "embedding"):
            x = self.embedding(x)
        x = x + sinusoids(x.shape[1], 256)
        for layer in self.layers:
            x = layer(x)
        return x


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv1d(256, 256, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
        self.linear = nn.Linear(256, 1)

    def forward(self, x):
        for conv, norm in ((self.conv1, self.norm1), (self.conv2, self.norm2)):
            x = norm(torch.relu(conv(x.transpose(1, 2))).transpose(1, 2))
        return self.linear(x)[..., 0]


class Variance(nn.Module):
    def __init__(self):
        super().__init__()
        self.predictor, self.embedding = Predictor(), nn.Embedding(256, 256)

    def forward(self, x):
        prediction = self.predictor(x)
        return x + self.embedding(torch.bucketize(prediction, torch.linspace(-3, 3, 255))), prediction


class Postnet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [80, 512, 512, 512, 512, 80]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, 5, padding=2) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])

    def forward(self, mel):
        y = mel.transpose(1, 2)
        for index, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            y = torch.tanh(y) if index < 4 else y
        return mel + y.transpose(1, 2)


class FastSpeech2(nn.Module):
    """After FastSpeech 2 (arXiv 2006.04558), with durations given as in training."""

    def __init__(self, frames):
        super().__init__()
        self.encoder, self.decoder = SpeechTransformer(4, 360), SpeechTransformer(6)
        self.duration_predictor, self.pitch, self.energy = Predictor(), Variance(), Variance()
        self.mel, self.postnet, self.frames = nn.Linear(256, 80), Postnet(), frames

    def forward(self, phonemes, durations):
        x = self.encoder(phonemes)
        log_durations = self.duration_predictor(x)
        x, pitch = self.pitch(x)
        x, energy = self.energy(x)
        stretched = x.new_zeros(x.shape[0], self.frames, x.shape[2])
        for row in range(x.shape[0]):
            frames = x[row].repeat_interleave(durations[row], dim=0)[: self.frames]
            stretched[row, : len(frames)] = frames
        mel = self.mel(self.decoder(stretched))
        return self.postnet(mel), mel, log_durations, pitch, energy


# Graphs: the layers are PyTorch Geometric's, written with index_add_ -------------------------------------------


def sums(rows, index, count):
    return rows.new_zeros(count, *rows.shape[1:]).index_add_(0, index, rows)


class GCNConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges):
        nodes = len(x)
        loops = torch.arange(nodes)
        source, target = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        degree = sums(torch.ones(len(target)), target, nodes)
        norm = degree[source].rsqrt() * degree[target].rsqrt()
        return sums(self.lin(x)[source] * norm[:, None], target, nodes) + self.bias


class SAGEConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges):
        count = sums(torch.ones(edges.shape[1]), edges[1], len(x)).clamp(min=1)
        return self.lin_l(sums(x[edges[0]], edges[1], len(x)) / count[:, None]) + self.lin_r(x)


class TwoLayers(nn.Module):
    def __init__(self, layer, features, hidden, classes):
        super().__init__()
        self.conv1, self.conv2 = layer(features, hidden), layer(hidden, classes)

    def forward(self, x, edges):
        return self.conv2(torch.relu(self.conv1(x, edges)), edges)


class ShiftedSoftplus(nn.Module):
    def forward(self, x):
        return F.softplus(x) - math.log(2)


class CFConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(128, 128, bias=False), nn.Linear(128, 128)

    def forward(self, x, edges, filters):
        return self.lin2(sums(self.lin1(x)[edges[0]] * filters, edges[1], len(x)))


class Interaction(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(50, 128), ShiftedSoftplus(), nn.Linear(128, 128))
        self.conv, self.act, self.lin = CFConv(), ShiftedSoftplus(), nn.Linear(128, 128)

    def forward(self, x, edges, distance, basis):
        cutoff = 0.5 * (torch.cos(distance * math.pi / 10.0) + 1.0)
        return self.lin(self.act(self.conv(x, edges, self.mlp(basis) * cutoff[:, None])))


class SchNet(nn.Module):
    def __init__(self, molecules):
        super().__init__()
        self.embedding = nn.Embedding(100, 128)
        self.interactions = nn.ModuleList(Interaction() for _ in range(6))
        self.lin1, self.act, self.lin2 = nn.Linear(128, 64), ShiftedSoftplus(), nn.Linear(64, 1)
        self.molecules = molecules

    def forward(self, z, pos, edges, batch):
        distance = (pos[edges[0]] - pos[edges[1]]).norm(dim=1)
        centres = torch.linspace(0, 10.0, 50)
        width = (centres[1] - centres[0]).item()
        basis = torch.exp(-0.5 / width**2 * (distance[:, None] - centres) ** 2)
        x = self.embedding(z)
        for interaction in self.interactions:
            x = x + interaction(x, edges, distance, basis)
        return sums(self.lin2(self.act(self.lin1(x))), batch, self.molecules)


class TimeEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(1, 100)

    def forward(self, t):
        return torch.cos(self.lin(t[:, None]))


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_enc, self.gru = TimeEncoder(), nn.GRUCell(100 + 100 + 172 + 100, 100)

    def forward(self, memory, updated, source, destination, time, message):
        last = {}
        for own, other in ((source, destination), (destination, source)):
            encoded = self.time_enc(time - updated[own])
            rows = torch.cat([memory[own], memory[other], message, encoded], dim=1)
            last |= {node.item(): row for node, row in zip(own, rows)}
        new, updated = memory.clone(), updated.clone()
        for node, row in last.items():
            new[node] = self.gru(row[None], memory[node][None])[0]
        for node, t in zip(torch.cat([source, destination]), torch.cat([time, time])):
            updated[node] = max(updated[node], t)
        return new, updated


class TransformerConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_query, self.lin_key, self.lin_value, self.lin_skip = (nn.Linear(100, 100) for _ in range(4))
        self.lin_edge = nn.Linear(272, 100, bias=False)

    def forward(self, x, edges, features):
        edge = self.lin_edge(features)
        query, key = self.lin_query(x)[edges[1]], self.lin_key(x)[edges[0]] + edge
        scores = (query.view(-1, 2, 50) * key.view(-1, 2, 50)).sum(-1) / math.sqrt(50)
        weights = torch.zeros_like(scores)
        for node in edges[1].unique():
            mine = edges[1] == node
            weights[mine] = scores[mine].softmax(0)
        value = (self.lin_value(x)[edges[0]] + edge).view(-1, 2, 50)
        return sums((value * weights[..., None]).flatten(1), edges[1], len(x)) + self.lin_skip(x)


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.time_enc, self.conv = TimeEncoder(), TransformerConv()

    def forward(self, x, updated, edges, times, messages):
        return self.conv(x, edges, torch.cat([self.time_enc(updated[edges[0]] - times), messages], dim=1))


class LinkPredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin_src, self.lin_dst, self.lin_final = nn.Linear(100, 100), nn.Linear(100, 100), nn.Linear(100, 1)

    def forward(self, source, destination):
        return self.lin_final(torch.relu(self.lin_src(source) + self.lin_dst(destination)))


class TGN(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.gnn, self.link_pred = Memory(), Embedding(), LinkPredictor()

    def forward(self, memory, updated, source, destination, time, message, edges, edge_time, edge_message):
        memory, updated = self.memory(memory, updated, source, destination, time, message)
        z = self.gnn(memory, updated, edges, edge_time, edge_message)
        return self.link_pred(z[source], z[destination]), memory, updated


# DeepLOB, UNet, block-sparse layer ------------------------------------------------------------------------------


class TimeConv(nn.Conv2d):
    """Over a number of times, which it keeps; then leaky ReLU."""

    def __init__(self, inputs, outputs, size):
        super().__init__(inputs, outputs, (size, 1))

    def forward(self, x):
        before = (self.kernel_size[0] - 1) // 2
        x = F.pad(x, (0, 0, before, self.kernel_size[0] - 1 - before))
        return F.leaky_relu(super().forward(x), 0.01)


def levels(inputs, width, stride):
    join = nn.Conv2d(inputs, 32, (1, width), (1, stride))
    return nn.ModuleList([join, TimeConv(32, 32, 4), TimeConv(32, 32, 4)])


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(TimeConv(32, 64, 1), TimeConv(64, 64, 3))
        self.b = nn.Sequential(TimeConv(32, 64, 1), TimeConv(64, 64, 5))
        self.c = TimeConv(32, 64, 1)

    def forward(self, x):
        pooled = F.max_pool2d(x, (3, 1), 1, (1, 0))
        return torch.cat([self.a(x), self.b(x), self.c(pooled)], dim=1)


class DeepLOB(nn.Module):
    def __init__(self):
        super().__init__()
        self.block1, self.block2, self.block3 = levels(1, 2, 2), levels(32, 2, 2), levels(32, 10, 1)
        self.inception, self.lstm, self.fc = Inception(), nn.LSTM(192, 64, batch_first=True), nn.Linear(64, 3)

    def forward(self, x):
        for join, first, second in (self.block1, self.block2, self.block3):
            x = second(first(F.leaky_relu(join(x), 0.01)))
        x = self.inception(x)[..., 0].transpose(1, 2)
        return self.fc(self.lstm(x)[0][:, -1]).softmax(1)


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        layers = []
        for width in (inputs, outputs):
            layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, 2 * inputs))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(2 * outputs, outputs, 2, 2), DoubleConv(2 * outputs, outputs)

    def forward(self, x, skipped):
        return self.conv(torch.cat([skipped, self.up(x)], dim=1))


class OutConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.outc = DoubleConv(1, 64), OutConv()
        for index in range(4):
            setattr(self, f"down{index + 1}", Down(64 << index))
            setattr(self, f"up{index + 1}", Up(512 >> index))

    def forward(self, x):
        left = [self.inc(x)]
        for down in (self.down1, self.down2, self.down3, self.down4):
            left.append(down(left[-1]))
        x = left.pop()
        for up in (self.up1, self.up2, self.up3, self.up4):
            x = up(x, left.pop())
        return self.outc(x)


class BlockSparse(nn.Module):
    """Blocks of the weight at one place in each segment of each row; zeros elsewhere."""

    def __init__(self, features, block, blocks):
        super().__init__()
        self.fc = nn.Linear(1, features)
        self.fc.weight = nn.Parameter(torch.randn(features // block, blocks, block, block) / math.sqrt(blocks * block))
        self.features, self.block, self.blocks = features, block, blocks

    def forward(self, x):
        block, weight = self.block, self.fc.weight
        segment = self.features // block // self.blocks
        dense = torch.zeros(self.features, self.features)
        for row in range(self.features // block):
            for at in range(self.blocks):
                mixed = (row * 2654435761 + at * 2246822519) % 2**32
                column = at * segment + (mixed >> 16) % segment
                dense[row * block : (row + 1) * block, column * block : (column + 1) * block] = weight[row, at]
        return F.linear(x, dense, self.fc.bias)


# Hamiltonian Monte Carlo ----------------------------------------------------------------------------------------


def mix(z):
    """SplitMix64's finalizer on arrays of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def bits(seed, count):
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        return mix(mix(np.uint64(seed) ^ golden) + golden * np.arange(1, count + 1, dtype=np.uint64))


def normals(seed, shape):
    words = bits(seed, math.prod(shape))
    radius = ((words >> np.uint64(32)).astype(float) + 0.5) * 2.0**-32
    angle = (words & np.uint64(0xFFFFFFFF)).astype(float) * 2.0**-32
    return torch.tensor(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)).float().view(shape)


def uniforms(seed, count):
    return torch.tensor((bits(seed, count) >> np.uint64(40)).astype(float) * 2.0**-24).float()


class MCMC(nn.Module):
    """The numbers are those of the graph's random operator; forces by autograd."""

    def __init__(self, samples):
        super().__init__()
        self.samples = samples

    def potential(self, position, points, labels):
        logits = position @ points.T
        return (F.softplus(logits) - labels * logits).sum(1) + 0.5 * (position**2).sum(1)

    def force(self, position, points, labels):
        with torch.enable_grad():
            position = position.clone().requires_grad_()
            return -torch.autograd.grad(self.potential(position, points, labels).sum(), position)[0]

    def forward(self, points, labels, position, seed):
        low, high = (int(word) for word in seed)
        step, taken, kept = 0.05, torch.zeros(len(position)), []
        for sample in range(self.samples):
            seeds = [(low + 2 * sample + which) % 2**32 | high << 32 for which in range(2)]
            momentum, chance = normals(seeds[0], tuple(position.shape)), uniforms(seeds[1], len(position))
            q, p = position, momentum + step / 2 * self.force(position, points, labels)
            for _ in range(10):
                q = q + step * p
                p = p + step * self.force(q, points, labels)
            p = p - step / 2 * self.force(q, points, labels)
            before = self.potential(position, points, labels) + 0.5 * (momentum**2).sum(1)
            after = self.potential(q, points, labels) + 0.5 * (p**2).sum(1)
            accept = torch.log(chance) < before - after
            position = torch.where(accept[:, None], q, position)
            taken += accept
            kept.append(position)
        kept = torch.stack(kept)
        return kept, kept.mean((0, 1)), taken / self.samples
