//! Functions of several elementwise steps that the vendor's library has as one, which rounds once.

/// A smooth function of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Smooth {
    /// `1 / (1 + exp(-x))`, an instruction of its own.
    Sigmoid,
    /// `x/2 · (1 + erf(x/√2))`.
    Gelu,
    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    GeluTanh,
}

impl Smooth {
    const ALL: [Smooth; 3] = [Smooth::Sigmoid, Smooth::Gelu, Smooth::GeluTanh];

    pub fn name(self) -> &'static str {
        match self {
            Smooth::Sigmoid => "sigmoid",
            Smooth::Gelu => "gelu",
            Smooth::GeluTanh => "gelu_tanh",
        }
    }

    pub fn from_name(name: &str) -> Option<Smooth> {
        Smooth::ALL.into_iter().find(|func| func.name() == name)
    }

    pub(super) fn of(self, x: f32) -> f32 {
        match self {
            Smooth::Sigmoid => 1.0 / (1.0 + libm::expf(-x)),
            Smooth::Gelu => 0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2)),
            Smooth::GeluTanh => {
                let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                0.5 * x * (1.0 + libm::tanhf(inner))
            }
        }
    }
}
