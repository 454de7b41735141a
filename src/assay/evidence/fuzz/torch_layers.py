"""What random torch programs are made of, where arguments depend on each other: layers, losses, control flow."""

from __future__ import annotations

from collections.abc import Callable

from assay.evidence.fuzz.drawing import NotPossible
from assay.evidence.fuzz.torch_grow import ProgramGrower, kind_of
from assay.evidence.fuzz.torch_program import Size

Maker = Callable[[ProgramGrower], str]
"""Gives the text of a statement or expression, as a template does."""


def _image(g: ProgramGrower, axes: int) -> str:
    """A tensor (batch, channels, sizes …) whose channels are a number; now and then its batch is empty."""
    fitting = g.tensors(lambda t: kind_of(t) == "f" and t.dim() == 2 + axes)
    if fitting and g.chance(0.6):
        return g.pick(fitting)
    named = list(g.worlds[0].sizes)
    batch: Size = g.pick(named) if named and g.chance(0.7) else g.pick((0, 1, 1, 2, 2, 2, 3, 3))
    spatial = [g.pick(named) if named and g.chance(0.4) else g.pick((3, 4, 5, 8)) for _ in range(axes)]
    return g.leaf([batch, g.pick((1, 2, 4)), *spatial], "f")


def _channels(g: ProgramGrower, text: str) -> int:
    size = g.size(text, 1)
    if isinstance(size, str):
        raise NotPossible("the channels are not a number")
    return size


def _weight(g: ProgramGrower, sizes: list[int], like: str) -> str:
    """A weight of a layer; without infinities, as the order of arithmetic decides what those become."""
    text = g.leaf(sizes, "f", role=g.pick(("parameter", "parameter", "buffer", "argument")), finite=True)
    wanted = g.value(like).dtype
    return text if g.value(text).dtype is wanted else f"{text}.to({wanted})"


def _window(g: ProgramGrower, axes: int, names: tuple[str, ...]) -> str:
    rows = {"stride": (1, 2, 3), "padding": (0, 1, 2), "dilation": (1, 1, 2), "output_padding": (0, 0, 1)}
    found = [f"{name}={g.pick(rows[name])}" for name in names if g.chance(0.6)]
    return "".join(f", {each}" for each in found)


def convolution(g: ProgramGrower) -> str:
    """A convolution in one to three axes, grouped or not, with or without a bias."""
    axes = g.pick((1, 2, 2, 2, 3))
    x = _image(g, axes)
    channels = _channels(g, x)
    groups = g.pick([each for each in (1, 1, 2, channels) if channels and not channels % each])
    kernel = [g.pick((1, 2, 3)) for _ in range(axes)]
    out = groups * g.pick((1, 2, 3))
    weight = _weight(g, [out, channels // groups, *kernel], x)
    bias = f", {_weight(g, [out], x)}" if g.chance(0.5) else ""
    return f"F.conv{axes}d({x}, {weight}{bias}, groups={groups}{_window(g, axes, ('stride', 'padding', 'dilation'))})"


def transposed_convolution(g: ProgramGrower) -> str:
    """A transposed convolution in one to three axes."""
    axes = g.pick((1, 2, 2, 3))
    x = _image(g, axes)
    channels = _channels(g, x)
    groups = g.pick([each for each in (1, 1, 2) if channels and not channels % each])
    out = g.pick((1, 2))
    weight = _weight(g, [channels, out, *(g.pick((1, 2, 3)) for _ in range(axes))], x)
    bias = f", {_weight(g, [out * groups], x)}" if g.chance(0.5) else ""
    window = _window(g, axes, ("stride", "padding", "dilation", "output_padding"))
    return f"F.conv_transpose{axes}d({x}, {weight}{bias}, groups={groups}{window})"


def pooling(g: ProgramGrower) -> str:
    """Max, average, power and adaptive pooling."""
    axes = g.pick((1, 2, 2, 3))
    if g.chance(0.2):
        return _window_of_padding(g, axes)
    x = _image(g, axes)
    kind = g.pick(("max", "max", "avg", "adaptive_avg", "adaptive_max", "lp"))
    if kind.startswith("adaptive"):
        return f"F.{kind}_pool{axes}d({x}, {g.pick((1, 2, 3))})"
    if kind == "lp":
        return f"F.lp_pool{min(axes, 2)}d({x}, 2, {g.pick((1, 2))})"
    size, stride = g.pick((1, 2, 3)), g.pick((1, 2, 3, None))
    options = f"padding={g.rng.randint(0, size // 2)}, ceil_mode={g.chance(0.4)}"
    if kind == "avg":
        return f"F.avg_pool{axes}d({x}, {size}, {stride}, {options}, count_include_pad={g.chance(0.5)})"
    if g.chance(0.3):
        return f"2: F.max_pool{axes}d({x}, {size}, {stride}, {options}, return_indices=True)"
    if g.chance(0.5):
        return f"F.max_pool{axes}d({x}, {size}, {stride}, {options})"
    return f"F.max_pool{axes}d({x}, {size}, {stride}, ceil_mode={g.chance(0.4)}, dilation={g.pick((2, 3))})"


def _window_of_padding(g: ProgramGrower, axes: int) -> str:
    """A max pool of which a window steps over the whole image, from padding to padding."""
    dilation, narrow = g.pick((2, 3)), g.rng.randrange(axes)
    spatial = [dilation - 1 if axis == narrow else g.pick((2, 3, 4)) for axis in range(axes)]
    text = f"torch.randn({g.pick((1, 2))}, {g.pick((1, 2))}, {', '.join(map(str, spatial))})"
    x = g.add_leaf("argument", f"{text}.requires_grad_()" if g.grad else text)
    return f"stepping_pool({x}, {dilation}, {g.pick((1, 2))})"


def resampling(g: ProgramGrower) -> str:
    """`interpolate` in all its modes, to sizes and by scales."""
    axes = g.pick((1, 2, 2, 3))
    x = _image(g, axes)
    smooth = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[axes]
    mode = g.pick(("nearest", "nearest-exact", "area", *smooth))
    where = f"size={g.pick((1, 2, 5, 7))}" if g.chance(0.4) else f"scale_factor={g.pick((0.5, 2, 1.5, 1))}"
    corners = f", align_corners={g.chance(0.5)}" if mode in smooth else ""
    return f"F.interpolate({x}, {where}, mode='{mode}'{corners})"


def patches(g: ProgramGrower) -> str:
    """`unfold` and `fold` of images."""
    x = _image(g, 2)
    columns = f"F.unfold({x}, {g.pick((1, 2, 3))}, padding={g.pick((0, 1))}, stride={g.pick((1, 2))})"
    if g.chance(0.6):
        return columns
    return f"F.fold(F.unfold({x}, 2, stride=2), ({x}.shape[2], {x}.shape[3]), 2, stride=2)"


def grids(g: ProgramGrower) -> str:
    """`grid_sample` with a grid of its own; eager's kernels differ from each other where it is not finite."""
    x = _image(g, 2)
    grid = g.leaf([g.size(x, 0), 3, 2, 2], "f", finite=True)
    mode, padding = g.pick(("bilinear", "nearest")), g.pick(("zeros", "border", "reflection"))
    return f"F.grid_sample({x}, {grid}.to({x}.dtype), '{mode}', '{padding}', align_corners={g.chance(0.5)})"


def norm(g: ProgramGrower) -> str:
    """Layer, group, batch, instance and RMS norm, with weights or without."""
    x = _image(g, g.pick((0, 1, 2)))
    channels = _channels(g, x)
    kind = g.pick(("layer", "rms", "group", "batch", "batch", "instance"))
    if kind in ("layer", "rms"):
        last = g.size(x, -1)
        weight = _weight(g, [last], x) if isinstance(last, int) and g.chance(0.6) else None
        return f"F.{kind}_norm({x}, ({x}.shape[-1],), {weight})"
    given = [_weight(g, [channels], x) if g.chance(0.6) else "None" for _ in range(2)]
    if kind == "group":
        given = given if given[0] != "None" else ["None", "None"]  # eager fails on the gradient of a bias alone
        groups = g.pick([each for each in (1, 2, channels) if channels and not channels % each])
        return f"F.group_norm({x}, {groups}, {', '.join(given)})"
    if kind == "instance":
        return f"F.instance_norm({x}, weight={given[0]}, bias={given[1]})"
    mean, variance = (g.leaf([channels], "f", role="buffer", finite=True) for _ in range(2))
    training = g.chance(0.5)
    return f"F.batch_norm({x}, {mean}.float(), {variance}.float().abs() + 1, {', '.join(given)}, training={training})"


def product(g: ProgramGrower) -> str:
    """Products of matrices: with weights, with itself, batched, by einsum."""
    x = g.tensor("f", 1, 4)
    last = g.size(x, -1)
    if g.value(x).dim() >= 2 and g.chance(0.4):
        rows = (
            "{0} @ {0}.transpose(-1, -2)",
            "torch.matmul({0}.mT, {0})",
            "torch.einsum('...ij,...kj->...ik', {0}, {0})",
        )
        return g.pick(rows).format(x)
    if not isinstance(last, int):
        raise NotPossible("the last axis is not a number")
    out = g.pick((1, 2, 3, 5, 16))
    weight = _weight(g, [out, last], x)
    rows = (
        "F.linear({0}, {1})",
        "F.linear({0}, {1}, {2})",
        "{0} @ {1}.t()",
        "torch.matmul({0}, {1}.t())",
        "torch.einsum('...i,oi->...o', {0}, {1})",
        "torch.tensordot({0}, {1}, dims=([-1], [1]))",
    )
    row = g.pick(rows)
    return row.format(x, weight, _weight(g, [out], x) if "{2}" in row else "")


def small_product(g: ProgramGrower) -> str:
    """`mm`, `bmm`, `addmm`, `mv`, `dot`, `baddbmm` and their like on tensors that fit."""
    rows: dict[str, int] = {
        "torch.mm({0}, {0}.t())": 2,
        "torch.addmm({0} @ {0}.t(), {0}, {0}.t(), beta={1}, alpha={2})": 2,
        "torch.mv({0}, {0}[0])": 2,
        "torch.dot({0}, {0})": 1,
        "torch.outer({0}, {0})": 1,
        "torch.vdot({0}, {0} * 2)": 1,
        "torch.bmm({0}, {0}.transpose(1, 2))": 3,
        "torch.baddbmm(torch.bmm({0}, {0}.mT), {0}, {0}.mT, beta={1}, alpha={2})": 3,
        "torch.einsum('bij,bik->bjk', {0}, {0})": 3,
        "torch.einsum('ij->ji', {0})": 2,
        "torch.einsum('ii', {0} @ {0}.t())": 2,
        "torch.einsum('i,j->ij', {0}, {0})": 1,
        "torch.chain_matmul({0}, {0}.t(), {0})": 2,
        "torch.cdist({0}, {0} + 1)": 2,
        "torch.kron({0}, {0}[:1, :2])": 2,
        "torch.linalg.multi_dot([{0}, {0}.t(), {0}])": 2,
        "torch.cross({0}[:, :1].expand(-1, 3), {0}[:, :1].expand(-1, 3) + 1, dim=1)": 2,
        "F.bilinear({0}, {0}, torch.ones(2, {0}.shape[-1], {0}.shape[-1], dtype={0}.dtype))": 2,
        "torch.linalg.det({0} @ {0}.t() + torch.eye({0}.shape[0], dtype={0}.dtype))": 2,
        "torch.linalg.solve({0} @ {0}.t() + 3 * torch.eye({0}.shape[0], dtype={0}.dtype), {0})": 2,
        "torch.linalg.inv({0} @ {0}.t() + 3 * torch.eye({0}.shape[0], dtype={0}.dtype))": 2,
    }
    row = g.pick(list(rows))
    return row.format(g.tensor("f", rows[row], rows[row]), g.pick((0, 1, 0.5)), g.pick((1, 2)))


def attention(g: ProgramGrower) -> str:
    """Attention of a tensor to itself, causal, masked or neither."""
    x = g.tensor("f", 3, 4)
    way = g.pick(("", ", is_causal=True", f", attn_mask=torch.ones({x}.shape[-2], {x}.shape[-2]).tril().bool()"))
    scale = g.pick(("", ", scale=0.5"))
    return f"F.scaled_dot_product_attention({x}, {x} * 2, {x} + 1{way}{scale})"


def classification_loss(g: ProgramGrower) -> str:
    """`nll_loss` and `cross_entropy` with weights, zeros among them, ignored targets, smoothing and every reduction."""
    axes = g.pick((0, 0, 1, 2))
    x = _image(g, axes)
    classes = _channels(g, x)
    low, high = g.pick(((0, classes), (0, classes), (-1, 0), (-1, classes)))
    target = g.leaf([g.size(x, 0), *(g.size(x, 2 + axis) for axis in range(axes))], "i", low=low, high=high)
    weight = f", weight={_weight(g, [classes], x)}.abs(){g.pick(('', '.floor()'))}" if g.chance(0.6) else ""
    reduction = g.pick(("mean", "mean", "sum", "none"))
    options = f"{weight}, ignore_index={g.pick((-1, -1, 0))}, reduction='{reduction}'"
    if g.chance(0.5):
        scores = g.pick((x, x, f"F.log_softmax({x}, 1)"))
        return f"F.nll_loss({scores}, {target}{options})"
    return f"F.cross_entropy({x}, {target}{options}, label_smoothing={g.pick((0.0, 0.0, 0.1))})"


def loss(g: ProgramGrower) -> str:
    """Losses of two tensors of one shape."""
    x = g.fill("{f}")
    other = _twin(g, x)
    names = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "poisson_nll_loss")
    rows = (
        *(f"F.{name}({{0}}, {{1}}, reduction='{{2}}')" for name in names),
        "F.binary_cross_entropy(torch.sigmoid({0}), ({1} > 0).to({0}.dtype), reduction='{2}')",
        "F.binary_cross_entropy_with_logits({0}, ({1} > 0).to({0}.dtype), reduction='{2}')",
        "F.kl_div({0}, torch.sigmoid({1}), reduction='{2}')",
        "F.hinge_embedding_loss({0}, {1}.sign(), reduction='{2}')",
        "F.gaussian_nll_loss({0}, {1}, {1}.abs() + 1, reduction='{2}')",
    )
    return g.pick(rows).format(x, other, g.pick(("mean", "sum", "none")))


def _twin(g: ProgramGrower, text: str) -> str:
    return f"({text}.flip(0) if {text}.dim() else {text} * 2)" if g.chance(0.3) else f"({text} * 0.5 + 1)"


def module(g: ProgramGrower) -> str:
    """A layer with parameters of its own."""
    x = g.tensor("f", 2, 3)
    size = g.size(x, -1)
    if not isinstance(size, int):
        raise NotPossible("the features are not a number")
    rows = (
        (f"nn.Linear({size}, {g.pick((2, 3, 9))})", "{1}({0})"),
        (f"nn.LayerNorm({size})", "{1}({0})"),
        (f"nn.GRU({size}, 3, batch_first={g.chance(0.5)})", "{1}({0})[{2}]"),
        (f"nn.LSTM({size}, 3, bidirectional={g.chance(0.5)})", "{1}({0})[0]"),
        (f"nn.RNN({size}, 4, nonlinearity='relu')", "{1}({0})[{2}]"),
        (f"nn.Sequential(nn.Linear({size}, 8), nn.ReLU(), nn.Linear(8, 2))", "{1}({0})"),
        (f"nn.MultiheadAttention({size}, 1, batch_first=True)", "{1}({0}, {0}, {0})[0]"),
        ("nn.PReLU()", "{1}({0})"),
        (f"nn.Embedding(5, {size})", "{1}({0}.nan_to_num(0, 0, 0).long().clamp(0, 4))"),
    )
    make, use = g.pick(rows)
    name = g.add_leaf("module", make)
    dtype = g.value(x).dtype
    return use.format(x if str(dtype) == "torch.float32" else f"{x}.float()", name, g.pick((0, 1)))


_BODIES = (
    "{0}.sin() * 2",
    "{0} + 1",
    "{0}.tanh() - {0}",
    "torch.relu({0}) * {0}",
    "{0}.clone()",
    "{0}.exp().clamp(max=3.0)",
)


def _body(g: ProgramGrower, name: str = "a") -> str:
    return g.pick(_BODIES).format(name)


def branch(g: ProgramGrower) -> str:
    """`torch.cond` on data, on sizes, nested, with several operands and results."""
    x = g.tensor("f", 0, 3)
    test = g.pick((f"{x}.sum() > 0", f"{x}.isnan().any()", f"torch.tensor({g.chance(0.5)})", f"({x} > 0.5).all()"))
    way = g.rng.random()
    if way < 0.5:
        return f"cond({test}, lambda a: {_body(g)}, lambda a: {_body(g)}, ({x},))"
    if way < 0.7:
        return f"2: cond({test}, lambda a: ({_body(g)}, a.sum()), lambda a: ({_body(g)}, a.mean() * 2), ({x},))"
    if way < 0.85:
        inner = f"cond(a.sum() > 1, lambda c: {_body(g, 'c')}, lambda c: {_body(g, 'c')}, (a,))"
        return f"cond({test}, lambda a: {inner}, lambda a: {_body(g)}, ({x},))"
    return f"cond({test}, lambda a, c: a * 2 + c, lambda a, c: a - c, ({x}, {x} * 3))"


def loop(g: ProgramGrower) -> str:
    """`while_loop` with a counter, `map` and `scan`."""
    x = g.tensor("f", 1, 3)
    way, count = g.rng.random(), g.pick((0, 1, 3))
    zero = "torch.zeros((), dtype=torch.int64)"
    if way < 0.35:
        return f"2: while_loop(lambda i, a: i < {count}, lambda i, a: (i + 1, {_body(g)}), ({zero}, {x}))"
    if way < 0.5:
        test = f"(i < {count}) & (a.sum() < 20)"
        return f"2: while_loop(lambda i, a: {test}, lambda i, a: (i + 1, a.abs() + 1), ({zero}, {x}))"
    if way < 0.75:
        return f"map_(lambda a: {_body(g)}, {x})"
    return f"2: scan(lambda c, a: (c + a, c * a), torch.zeros_like({x}[0]), {x}, reverse={g.chance(0.3)})"


def rematerialised(g: ProgramGrower) -> str:
    """`checkpoint` around arithmetic, with dropout inside or without."""
    x = g.tensor("f", 1, 3)
    drop = g.pick(("{}", "F.dropout({}, 0.5)", "F.dropout({}, 0.3, training=True) * 2"))
    return f"checkpoint(lambda a: {drop.format(_body(g))}, {x}, use_reentrant=False)"


def dropped(g: ProgramGrower) -> str:
    """Random numbers, drawn as eager draws them."""
    rows = (
        "F.dropout({0}, {1})",
        "torch.rand_like({0})",
        "torch.bernoulli(torch.sigmoid({0}))",
        "{0} + torch.randn({0}.shape)",
    )
    return g.pick(rows).format(g.tensor("f", 1, 3), g.pick((0.5, 0.0, 1.0)))


MAKERS: dict[Maker, float] = {
    convolution: 1.0,
    transposed_convolution: 0.6,
    pooling: 1.0,
    resampling: 0.7,
    patches: 0.3,
    grids: 0.2,
    norm: 1.0,
    product: 1.5,
    small_product: 0.8,
    attention: 0.5,
    classification_loss: 0.8,
    loss: 0.6,
    module: 0.6,
    branch: 0.6,
    loop: 0.5,
    rematerialised: 0.4,
    dropped: 0.2,
}
"""How often each is drawn, beside the families of templates."""
