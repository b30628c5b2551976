//! What the tests ask of modules.

use pando_base::{DType, Shape, Tensor};
use pando_graph::{Func, Module, Node, Op, random};
use pando_zoo::{Options, weights};

/// Numbers that training changes.
pub fn parameters(name: &str) -> u64 {
    let weights = weights(name, &Options::default()).expect("a model");
    weights.iter().filter(|weight| weight.learned).map(|weight| weight.shape.iter().product::<u64>()).sum()
}

/// Multiply-adds of products and convolutions in one run of `main`.
pub fn multiply_adds(module: &Module) -> u64 {
    func_multiply_adds(module, &module.funcs[module.main().expect("main")])
}

fn func_multiply_adds(module: &Module, func: &Func) -> u64 {
    func.nodes.values().map(|node| node_multiply_adds(module, func, node)).sum()
}

fn node_multiply_adds(module: &Module, func: &Func, node: &Node) -> u64 {
    let shape = |value| func.ty(value).shape().expect("numbers");
    match &node.op {
        Op::Dot(dot) => {
            let lhs = shape(node.operands[0]);
            let summed: u64 = dot.contract.iter().map(|&(axis, _)| lhs[axis]).product();
            shape(node.results[0]).num_elements() * summed
        }
        Op::Conv(_) => {
            let kernel = shape(node.operands[1]);
            shape(node.results[0]).num_elements() * (kernel.num_elements() / kernel[0])
        }
        Op::Repeat { count, body } => count * func_multiply_adds(module, &module.funcs[*body]),
        op => op.funcs().iter().map(|&callee| func_multiply_adds(module, &module.funcs[callee])).sum(),
    }
}

/// Inputs of a model: normal floats; integers below `below`.
pub fn inputs(module: &Module, below: u64) -> Vec<Tensor> {
    let main = &module.funcs[module.main().expect("main")];
    let types = main.param_types();
    (0..).zip(types).map(|(seed, ty)| draw(ty.dtype, &ty.shape().expect("numbers"), seed, below)).collect()
}

fn draw(dtype: DType, shape: &Shape, seed: u64, below: u64) -> Tensor {
    let count = shape.num_elements();
    if dtype.is_float() {
        let values: Vec<f64> = (0..count).map(|i| random::normal(seed, i)).collect();
        return Tensor::from_f64(dtype, shape.clone(), &values);
    }
    let values: Vec<i128> = (0..count).map(|i| i128::from(random::bits(seed, i) % below)).collect();
    Tensor::from_ints(dtype, shape.clone(), &values)
}

/// The largest difference as a share of the largest magnitude.
pub fn difference(actual: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!((actual.dtype(), actual.shape()), (expected.dtype(), expected.shape()));
    let (actual, expected) = (actual.to_f64(), expected.to_f64());
    let largest = expected.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
    let worst = actual.iter().zip(&expected).map(|(a, e)| (a - e).abs()).fold(0.0, f64::max);
    assert!(actual.iter().chain(&expected).all(|value| value.is_finite()), "not finite");
    if largest > 0.0 { worst / largest } else { worst }
}
