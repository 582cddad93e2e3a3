"""Recognition by structure alone, on encoders whose values have arbitrary names."""

import numpy as np
import onnx
import onnxruntime
import pytest

from kernelgen.graph import GraphError, TextEncoder, load, plan, read
from kernelgen.graph.builders import build_encoder
from kernelgen.graph.shapes import Known, broadcast, fold


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return build_encoder(tmp_path_factory.mktemp("graph") / "tiny.onnx")


@pytest.fixture(scope="module")
def encoder(path):
    return TextEncoder(str(path))


def test_the_steps_of_an_encoder(encoder):
    families = [step.operator.family for step in encoder.graph.steps]
    layer = [
        "gemm_bias",
        "attention",
        "gemm_bias_residual_layernorm",
        "gemm_bias_gelu",
        "gemm_bias_residual_layernorm",
    ]
    assert families == ["embed_layernorm", *layer, *layer, "mean_pool"]
    assert encoder.graph.uses("gemm_bias_128x384") == 2
    assert encoder.graph.hidden == 128
    assert encoder.graph.vocabulary == 500
    assert encoder.graph.max_tokens == 160


def test_operands_in_the_other_order_mean_the_same(path, encoder, tmp_path):
    other = load(build_encoder(tmp_path / "swapped.onnx", swap=True))
    for left, right in zip(encoder.graph.steps, other.steps, strict=True):
        assert left.operator == right.operator
        for one, two in zip(left.weights, right.weights, strict=True):
            assert np.array_equal(one, two)


def test_the_oracle_agrees_with_a_stock_runtime(path, encoder):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids_name, mask_name = encoder.input_names
    dims = {"n": 4, "tokens": 90}
    arrays = encoder.sample(np.random.default_rng(0), dims, "ragged")
    wanted = encoder.oracle(arrays, dims)["embeddings"]
    bound = encoder.error_bound(arrays, dims)["embeddings"]
    offsets = arrays["offsets"]
    for place in range(4):
        ids = arrays["ids"][None, offsets[place] : offsets[place + 1]]
        feeds = {ids_name: ids, mask_name: np.ones_like(ids)}
        got = session.run([encoder.output_name], feeds)[0][0]
        assert (np.abs(got - wanted[place]) <= bound[place]).all()


def test_padding_with_a_mask_means_the_same_as_no_padding(encoder):
    """What justifies leaving masks out of the compiled graph."""
    from kernelgen.graph import interpreter

    ids_name, mask_name = encoder.input_names
    ids = np.arange(12)[None]
    padded = np.concatenate([ids, np.full((1, 5), 3)], axis=1)
    mask = np.concatenate([np.ones((1, 12), np.int64), np.zeros((1, 5), np.int64)], axis=1)
    alone = encoder.embed(ids[0], np.array([0, 12]))
    feeds = {ids_name: padded, mask_name: mask}
    output = encoder.output_name
    assert np.allclose(
        interpreter.run(encoder.onnx, feeds, [output])[output], alone, rtol=0, atol=1e-12
    )


def _edit(path, out, change):
    model = onnx.load(str(path))
    change(model)
    onnx.save(model, str(out))
    return out


def _first(model, op):
    return next(node for node in model.graph.node if node.op_type == op)


def test_an_unknown_operator_is_named(tmp_path):
    path = build_encoder(tmp_path / "tanh.onnx", activation="tanh")
    with pytest.raises(GraphError, match=r"\(Tanh\): unknown operator"):
        load(path)


@pytest.mark.parametrize(
    ("op", "attribute", "value", "message"),
    [
        ("LayerNormalization", "axis", 1, r"got axis=1, wanted -1"),
        ("Softmax", "axis", 1, r"got axis 1, wanted -1"),
        ("Transpose", "perm", [0, 1, 2, 3], r"."),
        ("ReduceSum", "keepdims", 1, r"outputs|keepdims"),
    ],
)
def test_a_changed_attribute_is_refused(path, tmp_path, op, attribute, value, message):
    def change(model):
        node = _first(model, op)
        kept = [a for a in node.attribute if a.name != attribute]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute(attribute, value)])

    with pytest.raises(GraphError, match=message):
        load(_edit(path, tmp_path / "edited.onnx", change))


def test_relu_gelu_constant_is_checked(path, tmp_path):
    def change(model):
        erf = _first(model, "Erf")
        divide = next(node for node in model.graph.node if node.output[0] == erf.input[0])
        constant = next(node for node in model.graph.node if node.output[0] == divide.input[1])
        constant.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.float32(1.5).reshape(())))

    with pytest.raises(GraphError, match=r"wanted 1.41421 for GELU"):
        load(_edit(path, tmp_path / "edited.onnx", change))


def test_a_weak_mask_is_refused(path, tmp_path):
    def change(model):
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].t.data_type == 1:
                value = onnx.numpy_helper.to_array(node.attribute[0].t)
                if value.size == 1 and value < -1e30:
                    node.attribute[0].t.CopyFrom(
                        onnx.numpy_helper.from_array(np.float32(-100).reshape(()))
                    )

    with pytest.raises(GraphError, match=r"wanted scores plus \(1 - mask\)"):
        load(_edit(path, tmp_path / "edited.onnx", change))


def test_cross_attention_is_refused(path, tmp_path):
    def change(model):
        # The second product with weights is a projection: feed it something else of the same shape.
        weights = {tensor.name for tensor in model.graph.initializer}
        products = [n for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in weights]
        norm = _first(model, "LayerNormalization")
        products[1].input[0] = norm.input[0]

    with pytest.raises(GraphError, match="self-attention"):
        load(_edit(path, tmp_path / "edited.onnx", change))


def test_files_that_are_no_model(tmp_path):
    for content in (b"", b"plain text, no model"):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(GraphError, match="ONNX file"):
            read(tmp_path / "bad.onnx")


def test_shape_arithmetic_folds_to_symbols(path):
    model = read(path)
    known = fold(model, {name: ("batch", "seq") for name in model.inputs})
    shapes = {known[n.outputs[0]].shape for n in model.nodes if n.op == "Reshape"}
    assert ("batch", "seq", 4, 32) in shapes
    assert ("batch", "seq", 128) in shapes
    gathers = [known[n.inputs[1]] for n in model.nodes if n.op == "Gather"]
    assert any(index.counting and index.shape == (1, "seq") for index in gathers)
    assert any(index.fill == 0.0 and index.shape == ("batch", "seq") for index in gathers)


def test_broadcast_refuses_two_symbols():
    assert broadcast([("batch", 1, 3), ("seq", 3)]) == ("batch", "seq", 3)
    assert broadcast([("batch",), ("seq",)]) is None
    assert Known().shape is None


def test_values_alive_together_never_overlap(encoder):
    layout = plan(encoder.graph)
    steps = encoder.graph.steps
    chain_of = {s.label: i for i, group in enumerate(layout.chains) for s in group}
    for whole in (True, False):
        names = [name for name, spot in layout.places.items() if spot.whole is whole]
        spans = {}
        for name in names:
            touching = [s for s in steps if s.output == name or name in s.inputs]
            moments = [chain_of[s.label] if whole else steps.index(s) for s in touching]
            spans[name] = (min(moments), max(moments))
        for one in names:
            for two in names:
                if one < two and spans[one][0] <= spans[two][1] and spans[two][0] <= spans[one][1]:
                    a, b = layout.places[one], layout.places[two]
                    assert a.offset + a.width <= b.offset or b.offset + b.width <= a.offset
    # Everything between two attentions but the residual stays inside one block.
    assert not layout.places["wide0"].whole
    assert not layout.places["middle0"].whole
    assert layout.places["states1"].whole
