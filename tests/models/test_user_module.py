"""Custom torch modules: valid modules and errors."""

import pickle
import re

import cloudpickle
import numpy as np
import pytest
import torch

import decentral_dp
from decentral_dp.config.components import resolve
from decentral_dp.errors import InputError
from decentral_dp.models.build import ModelTable, build_model
from decentral_dp.models.module import TorchModel
from decentral_dp.models.protocol import Slope
from decentral_dp.simulation.folder.layout import resolved_toml
from decentral_dp.user_code import component
from tests.support.emulated_device import emulated_cuda

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, n_features, outputs, *layers):
        super().__init__()
        self.first, self.last = nn.Linear(n_features, 8), nn.Linear(8, outputs)
        self.layers = nn.Sequential(*layers)

    def forward(self, a):
        return self.last(torch.tanh(self.layers(self.first(a))))


def build(n_features, outputs):
"""


RECURRENT = """
import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, n_features, outputs):
        super().__init__()
        self.cell, self.last = nn.Linear(1 + 4, 4), nn.Linear(4, outputs)

    def forward(self, a):
        h = a.new_zeros(len(a), 4)
        for t in range(a.shape[1]):
            h = torch.tanh(self.cell(torch.cat([a[:, t : t + 1], h], dim=1)))
        return self.last(h)
"""


def load(tmp_path, body, head=HEAD, seed=0, n_features=6, outputs=2):
    (tmp_path / "net.py").write_text(head + "".join(f"    {line}\n" for line in body.split("\n")))
    return made(tmp_path, n_features, outputs, seed)


def made(folder, n_features=6, outputs=2, seed=0, device="cpu"):
    module = component("net:build", [folder], "problem.model")
    return build_model(ModelTable(kind="net:build"), n_features, outputs, None, seed, device, module)


def refusal(*args, **more):
    with pytest.raises(InputError) as caught:
        load(*args, **more)
    text = str(caught.value)
    assert text.count("\n") == 0
    assert text.endswith(".")
    return text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return Net(n_features, outputs)", TorchModel),
        ("return Net(n_features, outputs, nn.LayerNorm(8), nn.GELU())", TorchModel),
        ("return Net(n_features, outputs, nn.GroupNorm(2, 8), nn.ReLU(inplace=True))", TorchModel),
        ("return Net(n_features, outputs, nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2), nn.Flatten())", TorchModel),
        ("return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, outputs))", TorchModel),
        ("return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(outputs))", TorchModel),
        ("return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(8, outputs))",
         TorchModel),
        ("return nn.Sequential(nn.Unflatten(1, (3, 2)), nn.TransformerEncoderLayer(2, 1, 4, 0.0, batch_first=True), "
         "nn.Flatten(), nn.Linear(6, outputs))", TorchModel),
        ("return Net(n_features, outputs, nn.Dropout(0.0))", TorchModel),
        ("return Recurrent(n_features, outputs)", TorchModel),
    ],
)  # fmt: skip
def test_modules_that_are_taken(tmp_path, body, kind):
    model = load(tmp_path, body, RECURRENT + HEAD)
    assert isinstance(model, kind)
    rng = np.random.default_rng(0)
    records, cotangents = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    out, tape = model.forward(model.start, records)
    assert out.shape == (3, 2)
    total, factors = model.clipped_sum(Slope(tape, cotangents), np.zeros((3, 0)), np.inf)
    np.testing.assert_array_equal(factors, 1.0)
    along, h = rng.normal(size=model.p), 1e-6
    there, here = (np.sum(model.forward(model.start + s * h * along, records)[0] * cotangents) for s in (-1, 1))
    assert total @ along == pytest.approx((here - there) / (2 * h), rel=1e-5)
    copy = pickle.loads(cloudpickle.dumps(model))  # noqa: S301 - our own bytes; Ray sends problems so
    np.testing.assert_array_equal(copy.forward(copy.start, records)[0], out)


def test_weights_start_from_the_public_seed_and_torch_is_left_alone(tmp_path):
    body = "return Net(n_features, outputs)"
    before = torch.get_rng_state()
    one, same, other = (load(tmp_path, body, seed=seed).start for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


STATE, ALONE = r"the module changes 'layers\.\d\.", "does not run on one record at a time"
MIXES = "depends on the other records of its batch"
NORM = "nn.BatchNorm1d mixes the records of a batch. Fix: use nn.GroupNorm or nn.LayerNorm"
LAYERS = {
    "nn.BatchNorm1d(8)": NORM,
    "nn.BatchNorm1d(8, track_running_stats=False)": NORM,
    "nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2, track_running_stats=False), nn.Flatten()": NORM,
    "nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2, track_running_stats=True), nn.Flatten()": STATE,
    "nn.Dropout(0.1)": r"nn.Dropout draws random numbers. Fix: set its rate to 0",
    "nn.Unflatten(1, (2, 4)), nn.TransformerEncoderLayer(4, 1, 4, batch_first=True), nn.Flatten()": "Fix: set dropout",
    "nn.LSTM(8, 8)": "nn.LSTM has no per-example gradients .* Fix: write its cell as a loop of nn.Linear",
    "nn.GRUCell(8, 8)": "nn.GRUCell has no per-example gradients",
}


@pytest.mark.parametrize("layers", LAYERS)
def test_layers_that_are_refused(tmp_path, layers):
    assert re.search(LAYERS[layers], refusal(tmp_path, f"return Net(n_features, outputs, {layers})"))


def _trained(tmp_path, layers="nn.Linear(n, 8), nn.Tanh(), nn.Linear(8, outputs)", data="breast_cancer", **privacy):
    """A plan of a classifier by a module."""
    text = f"from torch import nn\n\n\ndef build(n, outputs):\n    return nn.Sequential({layers})\n"
    (tmp_path / "net.py").write_text(text)
    problem = {"kind": "classification", "data": data, "scale": "public_ranges", "model": "net:build"}
    content = {
        "problem": problem,
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "dp_dsgd", "rounds": 2, "learning_rate": {"scale": 0.1}},
        "privacy": privacy,
    }
    return decentral_dp.plan(decentral_dp.load(content, folder=tmp_path))


def test_without_noise_no_norm_of_noise_refuses_a_module(tmp_path):
    """The mechanism that is left out is Laplace's, which clips in a norm that no module has."""
    assert _trained(tmp_path, guarantee="none").n_agents == 4
    with pytest.raises(InputError, match="Laplace noise requires gradients clipped in l1"):
        _trained(tmp_path, epsilon=4.0, clip=1.0)


def forward(lines, before="", after=""):
    """A file whose module runs these lines; `before` in its constructor."""
    body = HEAD.replace("        return self.last(torch.tanh(self.layers(self.first(a))))\n", "")
    code = body.split("    def forward(self, a):\n")
    init = "".join(f"        {line}\n" for line in before.split("\n") if line)
    run = "".join(f"        {line}\n" for line in lines.split("\n"))
    return code[0].rstrip("\n") + "\n" + init + "\n    def forward(self, a):\n" + run + code[1]


FORWARDS = {
    "the mean of a batch": ("return self.last(self.first(a - a.mean(0)))", "", MIXES),
    "one record of a batch": ("return self.last(self.first(a)) + a[:1].sum()", "", MIXES),
    "attention among records": (
        "h = self.first(a)\nreturn self.last((h @ h.T).softmax(1) @ h)",
        "",
        MIXES,
    ),
    "noise": ("return self.last(self.first(a)) + torch.randn(2).double()", "", ALONE),
    "counts": ("self.n = getattr(self, 'n', 0) + 1\nreturn self.last(self.first(a)) * self.n", "", "and no state"),
    "a buffer": (
        "self.seen += 1\nreturn self.last(self.first(a))",
        "self.register_buffer('seen', torch.zeros(()))",
        "changes 'seen'",
    ),
    "records in place": ("return self.last(self.first(a.sub_(0.5)))", "", "changes its input in place"),
    "float32": ("return self.last(self.first(a)).float()", "", "of torch.float32 for 6 records"),
    "too many": ("return self.first(a)", "", r"returned shape \(6, 8\) of"),
    "a branch": (
        "return self.last(self.first(a)) if a.sum() > 0 else self.last(a[:, :1].expand(-1, 8))",
        "",
        ALONE,
    ),
    "no weights": ("return a[:, :2]", "", ALONE),
    "an embedding that changes its weights": (
        "return self.last(self.first(a) + self.table((2 * a[:, 0] + 2).long().clamp(0, 3)))",
        "self.table = nn.Embedding(4, 8, max_norm=0.1)",
        "changes 'table.weight'",
    ),
    "an embedding of scaled features": (
        "return self.last(self.first(a) + self.table((3.9 * a[:, 0]).long()))",
        "self.table = nn.Embedding(4, 8)",
        r"IndexError: .* Fix: undo the scaling of features to \[−1, 1\], as .*\.clamp\(0, K − 1\)",
    ),
    "an embedding of floats": (
        "return self.last(self.first(a) + self.table(a[:, 0]))",
        "self.table = nn.Embedding(4, 8)",
        "undo the scaling of features",
    ),
    "dead": ("return F.relu(self.last(self.first(a)) - 100.0)", "", "Fix: remove a final ReLU"),
    "not a number": (
        "return self.last(self.first(a))",
        "self.last.weight.data.fill_(torch.nan)",
        "initial values of parameter 'last.weight' are not finite float64",
    ),
    "frozen": (
        "return self.last(self.first(a))",
        "self.requires_grad_(False)",
        "has no trainable parameters",
    ),
}


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("name", FORWARDS)
def test_modules_that_are_refused(tmp_path, name):
    lines, before, told = FORWARDS[name]
    assert re.search(told, refusal(tmp_path, "return Net(n_features, outputs)", forward(lines, before)))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return 3", "net:build returned int, expected a torch module"),
        ("return Net(outputs)", "net:build fails: TypeError"),
        ("return nn.Linear(n_features, -1)", "net:build fails: RuntimeError"),
    ],
)
def test_functions_that_are_refused(tmp_path, body, told):
    assert told in refusal(tmp_path, body)


@pytest.mark.parametrize(
    ("last", "is_refused"), [("Sigmoid()", True), ("Softmax(1)", True), ("LogSoftmax(1)", False), ("Identity()", False)]
)
def test_classifiers_return_logits(tmp_path, last, is_refused):
    layers = f"nn.Linear(n, 8), nn.Tanh(), nn.Linear(8, outputs), nn.{last}"
    if is_refused:
        with pytest.raises(InputError, match=r"net:build: the outputs are probabilities .* Fix: leave out the last"):
            _trained(tmp_path, layers, data="digits", epsilon=1.0, mechanism="gaussian")
    else:
        assert _trained(tmp_path, layers, data="digits", epsilon=1.0, mechanism="gaussian").n_agents == 4


def test_a_mixture_that_slips_through_moves_no_other_record(tmp_path):
    """Records are evaluated one by one: what a module would do to a batch never happens."""
    lines = "out = self.last(self.first(a))\nreturn out + (a - a[:1]).abs().sum() * (len(a) == 5)"
    model = load(tmp_path, "return Net(n_features, outputs)", forward(lines))
    rng = np.random.default_rng(0)
    records = rng.normal(size=(5, 6))
    out = model.forward(model.start, records)[0]
    alone = np.concatenate([model.forward(model.start, record[None])[0] for record in records])
    np.testing.assert_allclose(out, alone, atol=1e-12)


def test_a_module_may_create_tensors_without_saying_where(tmp_path):
    """On a device they are created there."""
    lines = "return self.last(torch.tanh(self.first(a)) * torch.full((8,), 0.5, dtype=torch.float64))"
    load(tmp_path, "return Net(n_features, outputs)", forward(lines))
    here = made(tmp_path)
    records = np.random.default_rng(0).normal(size=(5, 6))
    wanted = here.forward(here.start, records)[0]
    with emulated_cuda():
        there = made(tmp_path, device="cuda")
        np.testing.assert_allclose(there.forward(here.start, records)[0], wanted, rtol=1e-9)
    assert isinstance(there, TorchModel)
    np.testing.assert_array_equal(there.start, here.start)


def scenario(tmp_path, model):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "s.toml").write_text(
        'seed = 1\n[problem]\nkind = "auc_maximisation"\ndata = "breast_cancer"\nscale = "public_ranges"\n'
        f'normalise = "l2"\npositive_share = 0.6\nmodel = {model}\n'
        '[topology]\nkind = "star"\nagents = 3\n[algorithm]\nkind = "dp_sgda"\nrounds = 2\nrate = 0.2\n'
        "x = { scale = 0.5 }\ny = { scale = 0.5 }\n[privacy]\nepsilon = 5.0\ndelta = 1e-4\nclip = { x = 1.0 }\n"
    )
    return tmp_path / "s.toml"


def test_scenarios_run_with_models(tmp_path):
    """The folder of the scenario and its file does not matter."""
    published = []
    for k in range(2):
        path = scenario(tmp_path / str(k), '"net:build"')
        body = "nn.Sequential(nn.Linear(a, 3), nn.GELU(), nn.Linear(3, b))"
        (path.parent / "net.py").write_text(f"from torch import nn\n\ndef build(a, b):\n    return {body}\n")
        run = decentral_dp.run(decentral_dp.load(path))
        assert run.result["status"] == "ok"
        assert run.published["x"].shape == (1, 30 * 3 + 3 + 3 + 1 + 2)
        published.append(run.published["x"])
        (tmp_path / "resolved.toml").write_text(resolved_toml(resolve(run.scenario)))
        assert [*decentral_dp.load(tmp_path / "resolved.toml").code_files().values()] == [path.parent / "net.py"]
    np.testing.assert_array_equal(*published)
    small = decentral_dp.run(decentral_dp.load(scenario(tmp_path / "mlp", '{ kind = "mlp", hidden = [4] }')))
    assert small.result["status"] == "ok"
