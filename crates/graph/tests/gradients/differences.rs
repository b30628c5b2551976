//! The derivative along a random direction, from the gradients and from central differences.

use pando_base::Tensor;
use pando_graph::{Builder, Module, ValueId, eval_wide, print, random, validate, wide, wide_values};

/// A `main` whose results are float outputs, then the gradients of `params`, then values to look at.
/// Its last parameters are the gradients of the outputs.
pub struct Differentiated {
    pub module: Module,
    outputs: usize,
    params: Vec<usize>,
}

/// What a comparison has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Right,
    /// No parameter has a gradient.
    Constant,
    /// A value is too large, or a function has a step or corner nearby: differences say nothing.
    NotSmooth,
    /// A slope on the way is infinite, as that of a root is at zero, though nothing depends on it.
    Singular,
}

impl Differentiated {
    /// Ends the open `main`. Values that are not floats are left out.
    pub fn new(
        mut b: Builder,
        params: &[ValueId],
        outputs: &[ValueId],
        watched: &[ValueId],
    ) -> pando_base::Result<Self> {
        let floats = |b: &Builder, values: &[ValueId]| -> Vec<ValueId> {
            values.iter().copied().filter(|&value| b.ty(value).dtype.is_float()).collect()
        };
        let (outputs, watched) = (floats(&b, outputs), floats(&b, watched));
        let mut seeded = Vec::new();
        for &output in &outputs {
            seeded.push((output, b.param("", b.ty(output).clone())));
        }
        let gradients = b.gradients(&seeded, params)?;
        let found = (0..params.len()).filter(|&param| gradients[param].is_some()).collect();
        let gradients: Vec<ValueId> = gradients.into_iter().flatten().collect();
        b.end(&[outputs.as_slice(), &gradients, &watched].concat());
        Ok(Differentiated { module: b.finish(), outputs: outputs.len(), params: found })
    }

    /// Where the gradients stand among the results.
    pub fn gradients(&self) -> std::ops::Range<usize> {
        self.outputs..self.outputs + self.params.len()
    }

    /// `other` has the arguments that are no floats.
    pub fn check(&self, seed: u64, other: &[Tensor]) -> Outcome {
        validate(&self.module).unwrap_or_else(|error| panic!("{error}\n{}", print(&self.module)));
        if self.params.is_empty() {
            return Outcome::Constant;
        }
        let point = Point::draw(self, seed, other);
        let here = point.run(0.0);
        let (coarse, fine) = (point.difference(2e-5), point.difference(1e-5));
        let gradients = &here[self.outputs..];
        let analytic: f64 = gradients.iter().zip(&point.directions).map(|(g, d)| dot(g, d)).sum();
        let values = here.iter().flatten().map(|value| value.abs());
        let scale =
            values.fold(
                1.0 + fine.abs(),
                |scale, value| if value <= scale || scale.is_nan() { scale } else { value },
            );
        if scale.is_nan() || scale > 1e5 || (coarse - fine).abs() > 1e-5 * scale {
            return Outcome::NotSmooth;
        }
        if !analytic.is_finite() {
            return Outcome::Singular;
        }
        let close = (analytic - fine).abs() < 1e-4 * scale;
        assert!(close, "{analytic} instead of {fine}\n{}", print(&self.module));
        Outcome::Right
    }
}

/// Arguments, and a direction for each parameter that has a gradient.
struct Point<'a> {
    made: &'a Differentiated,
    args: Vec<Tensor>,
    directions: Vec<Vec<f64>>,
}

impl<'a> Point<'a> {
    /// Floats from a normal distribution, no two alike.
    fn draw(made: &'a Differentiated, seed: u64, other: &[Tensor]) -> Self {
        let main = &made.module.funcs[made.module.main().unwrap()];
        let arg = |(position, ty): (usize, &&pando_graph::TensorType)| {
            let shape = ty.shape().unwrap();
            match ty.dtype.is_float() {
                true => wide(shape.clone(), &normal(seed * 64 + position as u64, shape.num_elements())),
                false => other[position].clone(),
            }
        };
        let args: Vec<Tensor> = main.param_types().iter().enumerate().map(arg).collect();
        let direction = |&param: &usize| normal(seed ^ 1 << 40 | param as u64, args[param].num_elements());
        Point { made, directions: made.params.iter().map(direction).collect(), args }
    }

    /// The results at a distance along the direction.
    fn run(&self, distance: f64) -> Vec<Vec<f64>> {
        let mut args = self.args.clone();
        for (&param, direction) in self.made.params.iter().zip(&self.directions) {
            let from = wide_values(&args[param]);
            let to: Vec<f64> = from.iter().zip(direction).map(|(x, d)| x + distance * d).collect();
            args[param] = wide(args[param].shape().clone(), &to);
        }
        let module = &self.made.module;
        eval_wide(module, module.main().unwrap(), &args).unwrap().iter().map(wide_values).collect()
    }

    fn difference(&self, step: f64) -> f64 {
        let seeds = &self.args[self.args.len() - self.made.outputs..];
        let value = |results: Vec<Vec<f64>>| -> f64 {
            results.iter().zip(seeds).map(|(result, seed)| dot(result, &wide_values(seed))).sum()
        };
        (value(self.run(step)) - value(self.run(-step))) / (2.0 * step)
    }
}

fn normal(seed: u64, count: u64) -> Vec<f64> {
    (0..count).map(|index| random::normal(seed, index)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
