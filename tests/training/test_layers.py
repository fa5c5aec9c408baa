"""Layers and rules: local backward passes against autograd, rules against their formulas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from memtui.training.network_specs import SEQUENCES, check_shapes, layers_of  # noqa: E402
from memtui.training.torch.composite_layers import Residual, backward, exactly, forward  # noqa: E402
from memtui.training.torch.iteration import Iteration  # noqa: E402
from memtui.training.torch.loss_functions import BY_NAME as COSTS  # noqa: E402
from memtui.training.torch.network import Network, build  # noqa: E402
from memtui.training.torch.optimiser import SGD  # noqa: E402
from memtui.training.torch.rules import BY_NAME as RULES  # noqa: E402
from memtui.training.torch.weights_file import save  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_of_torch")
_CONV = {"filter_dim": 3, "num_of_filters": 4}
_KINDS = (
    ("FullyConnected", {"units": 3, "flatten": True}, (2, 4, 5)),
    ("FullyConnected", {"units": 3, "add_biases": False}, (7,)),
    ("Convolutional", _CONV, (2, 6, 5)),
    ("Convolutional", {**_CONV, "strides": 2, "padding": "VALID", "add_biases": True}, (3, 7, 8)),
    ("Convolutional", {**_CONV, "filter_dim": (5, 1), "strides": (1, 2)}, (1, 9, 6)),
    ("MaxPool", {"kernel_size": 3, "strides": 2}, (2, 8, 7)),
    ("MaxPool", {"kernel_size": 2, "padding": "VALID"}, (2, 7, 6)),
    ("AveragePool", {"kernel_size": 3, "strides": 2}, (2, 8, 7)),
    ("AveragePool", {}, (3, 4, 5)),
    ("BatchNormalization", {}, (4, 3, 3)),
    ("BatchNormalization", {}, (6,)),
    *((name, {}, (5,)) for name in ("Sigmoid", "Tanh", "ReLu", "LeakyReLu", "Softmax")),
    ("Block", {"head": {"layer": "FullyConnected", "units": 4}, "tail": [{"layer": "Tanh"}]}, (5,)),
    (
        "Residual",
        {"layers": [{"layer": "Convolutional", **_CONV, "strides": 2}, {"layer": "Tanh"}]},
        (3, 6, 6),
    ),
    ("Residual", {"layers": [{"layer": "FullyConnected", "units": 5}, {"layer": "Sigmoid"}]}, (5,)),
)


def made(name: str, parameters: dict, shape: tuple[int, ...], seed: int = 0):
    spec = layers_of([{"layer": name, **parameters}, {"layer": "FullyConnected", "units": 1, "flatten": True}], 1)[0]
    layer = build(spec, shape, torch.Generator().manual_seed(seed)).double()
    for parameter in layer.parameters():  # biases begin at zero, where a mistake could hide
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + 1)))
    return layer


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: f"{kind[0]}-{'x'.join(map(str, kind[2]))}")
@settings(max_examples=8, deadline=None)
@given(examples=st.integers(1, 5), seed=st.integers(0, 1 << 20))
def test_the_local_backward_pass_is_that_of_autograd(kind, examples, seed):
    name, parameters, shape = kind
    layer = made(name, parameters, shape, seed)
    random = torch.Generator().manual_seed(seed)
    x = torch.randn((examples + (name == "BatchNormalization"), *shape), generator=random, dtype=torch.float64)
    with torch.no_grad():
        y, kept = layer(x)
        error = torch.randn(y.shape, generator=random, dtype=torch.float64)
        gradient = layer.backward(kept, error, exactly)
        gradients = {name: p.grad.clone() for name, p in layer.named_parameters()}
        for parameter in layer.parameters():
            parameter.grad = None
    layer.requires_grad_(True)
    x.requires_grad_(True)
    layer(x)[0].backward(error)
    assert torch.allclose(gradient.view(x.shape), x.grad)
    for name, parameter in layer.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad), name


@pytest.mark.parametrize("name", COSTS)
@settings(max_examples=10, deadline=None)
@given(examples=st.integers(1, 6), classes=st.integers(2, 7), seed=st.integers(0, 1 << 20))
def test_the_error_of_a_cost_is_the_gradient_of_its_loss(name, examples, classes, seed):
    random = torch.Generator().manual_seed(seed)
    out = torch.randn((examples, classes), generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, classes, (examples,), generator=random)
    cost = COSTS[name]()
    # The gradient of the mean squared error is found by differences: its loss works in place.
    with torch.no_grad():
        error = cost.error(out, labels, torch.ones((), dtype=torch.float64))
        step = torch.randn(out.shape, generator=random, dtype=torch.float64) * 1e-6
        slope = cost.loss(out + step, labels) - cost.loss(out - step, labels)
    assert torch.allclose(slope / 2, (error * step).sum(), rtol=1e-4, atol=1e-13)


def network(name: str, rule: str, seed: int = 1):
    sequence, shape = SEQUENCES[name]
    return Network(layers_of(sequence, 10), shape, 10, RULES[rule](), seed), shape


class Still(SGD):
    """Finds gradients and leaves the weights alone."""

    def update(self, parameters):
        return


def batch(shape, examples: int = 6, seed: int = 3):
    random = torch.Generator().manual_seed(seed)
    return torch.randn((examples, *shape), generator=random), torch.randint(0, 10, (examples,), generator=random)


@pytest.mark.parametrize("name", ["fcReLu", "fcSigmoid", "liao_mnist_bn", "liao_cifar", "resnet_18"])
def test_back_propagation_is_autograd(name):
    """Of the whole network, with the loss that is told."""
    net, shape = network(name, "BP")
    cost = COSTS["softmax_cross_entropy"]()
    x, labels = batch(shape)
    loss = Iteration(net, RULES["BP"](), cost, Still(net.parameters(), 0.1, 0.0)).run(x, labels)
    result = {key: p.grad.clone() for key, p in net.named_parameters()}
    net.zero_grad()
    net.requires_grad_(True)
    with torch.enable_grad():
        wanted = cost.loss(net(x), labels)
        wanted.backward()
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-6)
    for key, parameter in net.named_parameters():
        scale = parameter.grad.abs().max()
        assert torch.allclose(result[key], parameter.grad, atol=float(1e-4 * scale + 1e-7)), key


def test_feedback_alignment_carries_errors_by_its_own_matrix():
    net, shape = network("fcReLu", "FA")
    x, labels = batch(shape)
    Iteration(net, RULES["FA"](), COSTS["softmax_cross_entropy"](), Still(net.parameters(), 0.1, 0.0)).run(x, labels)
    first, _, second, _, last = net.children()
    h1 = torch.relu(first(x)[0])
    h2 = torch.relu(second(h1)[0])
    error = torch.softmax(last(h2)[0], 1)
    error[torch.arange(len(x)), labels] -= 1
    error /= len(x)
    below = (error @ last.feedback.t()) * (h2 > 0)
    assert torch.allclose(last.weight.grad, h2.t() @ error, atol=1e-6)
    assert torch.allclose(second.weight.grad, h1.t() @ below, atol=1e-6)
    assert torch.allclose(first.weight.grad, x.t() @ ((below @ second.feedback.t()) * (h1 > 0)), atol=1e-6)
    assert not torch.equal(last.feedback, last.weight)
    assert first.feedback is None or first.feedback.shape == first.weight.shape


@pytest.mark.parametrize("rule", ["DFA", "DFAMEM"])
def test_direct_feedback_alignment_sends_the_networks_error_everywhere(rule):
    net, shape = network("fcReLu", rule)
    x, labels = batch(shape)
    Iteration(net, RULES[rule](), COSTS["softmax_cross_entropy"](), Still(net.parameters(), 0.1, 0.0)).run(x, labels)
    first, _, second, _, last = net.children()
    h1 = torch.relu(first(x)[0])
    h2 = torch.relu(second(h1)[0])
    error = torch.softmax(last(h2)[0], 1)
    error[torch.arange(len(x)), labels] -= 1
    error /= len(x)
    assert torch.allclose(second.weight.grad, h1.t() @ ((error @ last.feedback) * (h2 > 0)), atol=1e-6)
    assert torch.allclose(first.weight.grad, x.t() @ ((error @ second.feedback) * (h1 > 0)), atol=1e-6)
    assert last.feedback.shape == (10, 30)


@pytest.mark.parametrize("name", ["fcReLu", "liao_cifar", "liao_cifar_bn", "resnet_18"])
def test_mem_dfa_learns_what_dfa_learns_to_the_bit(name):
    """Weights, running statistics and momentum: those advance once an iteration under both."""
    result = {}
    for rule in ("DFA", "DFAMEM", "BP"):
        net, shape = network(name, rule)
        optimiser = SGD(net.parameters(), 0.01, 0.9)
        iteration = Iteration(net, RULES[rule](), COSTS["softmax_cross_entropy"](), optimiser)
        losses = [iteration.run(*batch(shape, seed=seed)) for seed in range(3)]
        state = [optimiser.state[p]["momentum_buffer"] for p in net.parameters()]
        result[rule] = net.state_dict(), state, losses
    one, other = result["DFA"], result["DFAMEM"]
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(one[0][key], other[0][key]) for key in one[0])
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    assert one[2] == other[2]
    assert not all(torch.equal(one[0][key], result["BP"][0][key]) for key in result["BP"][0])


@pytest.mark.parametrize("name", ["fcReLu", "liao_cifar_bn"])
def test_mem_dfa_passes_forward_twice_and_no_more(name):
    """Operators of layers with weights, in the forward passes of one iteration."""
    counts = {}
    for rule in ("BP", "DFA", "DFAMEM"):
        net, shape = network(name, rule)
        calls = []
        for layer in net.modules():
            if type(layer).__name__ in ("FullyConnected", "Convolutional"):
                layer.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        optimiser = SGD(net.parameters(), 0.01, 0.9)
        Iteration(net, RULES[rule](), COSTS["softmax_cross_entropy"](), optimiser).run(*batch(shape))
        counts[rule] = len(calls)
    assert counts["BP"] == counts["DFA"] == sum(name in ("FullyConnected", "Convolutional") for name in _kinds(name))
    assert counts["DFAMEM"] == 2 * counts["BP"]


def _kinds(name: str) -> list[str]:
    return [spec["layer"] for spec in layers_of(name, 10)]


def test_momentum_and_step_are_those_of_torch():
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 5)) for _ in range(2)]
    ours = SGD([weights[0]], 0.1, 0.9)
    theirs = torch.optim.SGD([weights[1]], lr=0.1, momentum=0.9)
    for n in range(4):
        for weight in weights:
            weight.grad = torch.full((5,), float(n))
        with torch.no_grad():
            ours.step()
        theirs.step()
    assert torch.allclose(weights[0], weights[1])
    assert weights[0].grad is None


def test_a_chain_lets_go_of_what_it_used():
    layers = [made("FullyConnected", {"units": 4}, (4,), seed) for seed in range(3)]
    kept = []
    with torch.no_grad():
        out = forward(layers, torch.ones(2, 4, dtype=torch.float64), kept)
        assert len(kept) == 3
        assert backward(kept, out, exactly, wanted=False) is None
    assert kept == []
    assert all(layer.weight.grad is not None for layer in layers)


def test_a_residual_layer_has_a_shortcut_of_its_own_where_shapes_differ():
    layers = layers_of("resnet_18", 10)
    check_shapes(layers, (3, 32, 32), 10)
    net = Network(layers, (3, 32, 32), 10, RULES["DFA"](), 1)
    residuals = [layer for layer in net.children() if isinstance(layer, Residual)]
    assert [layer.shortcut is not None for layer in residuals] == [False, False, True, False, True, False, True, False]
    assert all(layer.feedback is not None for layer in residuals)


def test_weights_are_saved_under_every_name_that_a_file_may_have(tmp_path):
    """What is written beside them meanwhile needs no more room, or a training would end without its result."""
    path = tmp_path / ("w" * 255)
    network = SimpleNamespace(state_dict=lambda: {"w": torch.ones(2)})
    save(network, path)
    assert torch.load(path, weights_only=True)["w"].tolist() == [1, 1]
    assert list(tmp_path.iterdir()) == [path]
