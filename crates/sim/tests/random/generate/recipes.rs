//! Random operations of several steps: inputs, an exchange that spreads them, the matrix unit.

use super::Generator;
use super::computes::Use;
use super::layouts::Kind;
use pando_base::DType;
use pando_tile::kernel::{Codelet, ConvAttrs, ConvMethod};
use pando_tile::{
    Axis, Copy, CopyMap, Grid, Group, Init, Kernel, Layout, Operand, Part, Region, Role, Span, Step, VarId,
};
use smallvec::{SmallVec, smallvec};

impl Generator {
    /// A batched matrix product, split in up to three ways.
    pub fn matmul(&mut self) {
        let dtype = *self.source.pick(&[DType::F32, DType::F16]);
        let [batch, m, k, n] = [3, 7, 9, 7].map(|most| self.source.within(1, most));
        let (lhs, rhs) = (self.input_of(dtype, &[batch, m, k]), self.input_of(dtype, &[batch, k, n]));
        let out_home = self.layout(&[batch, m, n], Kind::Copies);
        let [b_span, m_span, n_span] = [0, 1, 2].map(|dim| out_home.region[dim]);
        let spread_lhs = self.spread(lhs, &out_home, smallvec![b_span, m_span, Span::full(k)]);
        let spread_rhs = self.spread(rhs, &out_home, smallvec![b_span, Span::full(k), n_span]);
        let out_dtype = *self.source.pick(&[dtype, DType::F32]);
        let out = self.var(out_dtype, &[batch, m, n], out_home.clone(), Role::Temp);
        self.push_exchange(vec![self.identity(lhs, spread_lhs), self.identity(rhs, spread_rhs)]);
        let kernel = Kernel::MatMul {
            batch: smallvec![(0, 0)],
            contract: smallvec![(2, 1)],
            order: smallvec![],
            partials: DType::F32,
        };
        let labels = [[Some(0), Some(1), None], [Some(0), None, Some(2)], [Some(0), Some(1), Some(2)]];
        let uses = [spread_lhs, spread_rhs, out].into_iter().zip(labels);
        let uses = uses.map(|(var, labels)| Use { labels: labels.to_vec(), ..self.whole(var) }).collect();
        let groups = self.groups(kernel, out_home.grid, uses);
        self.push_compute(groups);
        self.readable.extend([spread_lhs, spread_rhs, out]);
    }

    /// A temporary for a variable on another one's grid, in another region.
    fn spread(&mut self, var: VarId, home: &Layout, region: Region) -> VarId {
        let (dtype, shape) = (self.program.vars[var].dtype, self.program.vars[var].shape.clone());
        self.var(dtype, &shape, Layout { grid: home.grid.clone(), region }, Role::Temp)
    }

    fn identity(&self, src: VarId, dst: VarId) -> Copy {
        Copy { src, dsts: smallvec![dst], map: CopyMap::identity(&self.program.vars[src].shape) }
    }

    /// A convolution whose tiles hold the windows of the input that their outputs need.
    pub fn conv(&mut self) {
        let dtype = *self.source.pick(&[DType::F32, DType::F16]);
        let [n, c, o] = [2, 4, 4].map(|most| self.source.within(1, most));
        let field: Vec<Spatial> = (0..self.source.within(1, 2)).map(|_| self.spatial()).collect();
        let sized = |first: [u64; 2], size: fn(&Spatial) -> u64| -> Vec<u64> {
            first.into_iter().chain(field.iter().map(size)).collect()
        };
        let input = self.input_of(dtype, &sized([n, c], |s| s.input));
        let out_home = self.layout(&sized([n, o], |s| s.output), Kind::Copies);
        let windows = field.iter().zip(&out_home.region[2..]).map(|(spatial, span)| spatial.window(*span));
        let region = [out_home.region[0], Span::full(c)].into_iter().chain(windows).collect();
        let spread = self.spread(input, &out_home, region);
        self.push_exchange(vec![self.identity(input, spread)]);
        let kernel_shape = sized([o, c], |s| s.kernel);
        let mut region: Region = kernel_shape.iter().map(|&size| Span::full(size)).collect();
        region[0] = out_home.region[1];
        let home = Layout { grid: out_home.grid.clone(), region };
        let weights = self.var(dtype, &kernel_shape, home, Role::Constant(Init::Extern));
        let out = self.var(dtype, &sized([n, o], |s| s.output), out_home.clone(), Role::Temp);
        let attribute =
            |value: fn(&Spatial) -> u64| -> SmallVec<[u64; 2]> { field.iter().map(value).collect() };
        let kernel = Kernel::Conv(ConvAttrs {
            strides: attribute(|s| s.stride),
            padding_low: attribute(|s| s.padding),
            kernel_dilation: attribute(|s| s.dilation),
            groups: 1,
            partials: DType::F32,
            method: ConvMethod::Positions,
        });
        let labels =
            |first: [Option<usize>; 2]| first.into_iter().chain(field.iter().map(|_| None)).collect();
        let uses = vec![
            Use { labels: labels([Some(0), None]), ..self.whole(spread) },
            Use { labels: labels([Some(1), None]), ..self.whole(weights) },
            Use { labels: labels([Some(0), Some(1)]), ..self.whole(out) },
        ];
        let groups = self.groups(kernel, out_home.grid, uses);
        self.push_compute(groups);
        self.readable.extend([spread, out]);
    }

    /// A hand-written vertex that reads its neighbours' elements.
    pub fn stencil(&mut self) {
        let dtype = *self.source.pick(&[DType::F32, DType::F16]);
        let shape = [5, 9].map(|most| self.source.within(1, most));
        let input = self.input_of(dtype, &shape);
        let out_home = self.layout(&shape, Kind::Copies);
        let windows = shape.iter().zip(&out_home.region).map(|(&size, span)| neighbours(*span, size));
        let around = self.spread(input, &out_home, windows.collect());
        self.push_exchange(vec![self.identity(input, around)]);
        let out = self.var(dtype, &shape, out_home.clone(), Role::Temp);
        let code = "0.5 * (i0[-1,0] - i0[1,1]) + i0 / 3";
        let codelet = Codelet::parse(code, self.source.within(1, 2), self.source.within(1, 2), 2);
        let kernel = Kernel::Codelet(Box::new(codelet.expect("valid code")));
        let labels = vec![Some(0), Some(1)];
        let uses =
            vec![Use { labels: labels.clone(), ..self.whole(around) }, Use { labels, ..self.whole(out) }];
        let groups = self.groups(kernel, out_home.grid, uses);
        self.push_compute(groups);
        self.readable.extend([around, out]);
    }

    /// Dot products of rows by single workers, several groups on overlapping tiles, rows cut unevenly: what
    /// the dealing of vertices to workers depends on.
    pub fn rowdots(&mut self) {
        let (mut groups, mut outs) = (Vec::new(), Vec::new());
        for _ in 0..=self.source.below(3) {
            let (group, out) = self.rowdot();
            let single = group.grid.len() <= 12 && self.source.chance(2);
            groups.extend(if single { self.written_out(&group) } else { vec![group] });
            outs.push(out);
        }
        self.push_compute(groups);
        self.readable.extend(outs);
    }

    /// One row for each coordinate of three axes: tiles, rows of a tile, and parts of a row.
    fn rowdot(&mut self) -> (Group, VarId) {
        let tiles = self.source.within(1, u64::from(self.program.tiles));
        let [rows, parts] = [4, 3].map(|most| self.source.within(1, most));
        let length = self.source.within(parts, 9);
        let base = self.source.within(0, u64::from(self.program.tiles) - tiles) as u32;
        let order = self.source.order(3);
        let axis = |which: usize| order.iter().position(|&at| at == which).expect("an order has every axis");
        let split = |which: usize, total: u64| Span::Part(Part::even(axis(which), total, 1));
        let extents = [(tiles, 1), (rows, 0), (parts, 0)];
        let axes = order.iter().map(|&at| Axis { extent: extents[at].0 as u32, stride: extents[at].1 });
        let grid = Grid { base, axes: axes.collect() };
        let home = |shape: &[u64]| {
            let mut region: Region = shape.iter().map(|&size| Span::full(size)).collect();
            if shape.len() == 3 {
                region[0] = Span::Part(Part::even(0, tiles, 1));
            }
            Layout { grid: Grid { base, axes: smallvec![Axis { extent: tiles as u32, stride: 1 }] }, region }
        };
        let matrix = self.var(DType::F32, &[tiles, rows, length], home(&[tiles, rows, length]), Role::Input);
        self.push(Step::HostIn(matrix));
        let vector = self.var(DType::F32, &[length], home(&[length]), Role::Constant(Init::Extern));
        let out = self.var(DType::F32, &[tiles, rows, parts], home(&[tiles, rows, parts]), Role::Temp);
        let operand = |var, region: Region| Operand { var, region };
        let operands = smallvec![
            operand(matrix, smallvec![split(0, tiles), split(1, rows), split(2, length)]),
            operand(vector, smallvec![split(2, length)]),
            operand(out, smallvec![split(0, tiles), split(1, rows), split(2, parts)]),
        ];
        (Group { kernel: Kernel::RowDot, grid, operands }, out)
    }

    fn spatial(&mut self) -> Spatial {
        let [input, kernel, stride, dilation] = [9, 3, 3, 2].map(|most| self.source.within(1, most));
        let padding = self.source.within(0, 2);
        let reach = (kernel - 1) * dilation + 1;
        // What the input and its padding on both sides have room for, but at least one output.
        let output = (input + 2 * padding).saturating_sub(reach) / stride + 1;
        Spatial { input, kernel, stride, dilation, padding, output }
    }
}

/// A span with the indices next to it.
fn neighbours(span: Span, size: u64) -> Span {
    match span {
        Span::Part(part) => Span::Part(Part { mul: 1, lo: -1, hi: 2, ..part }),
        Span::Fixed { begin, end } => {
            Span::Fixed { begin: begin.saturating_sub(1), end: (end + 1).min(size) }
        }
    }
}

/// One spatial dimension of a convolution.
struct Spatial {
    input: u64,
    kernel: u64,
    stride: u64,
    dilation: u64,
    padding: u64,
    output: u64,
}

impl Spatial {
    /// The inputs that a span of outputs needs.
    fn window(&self, outputs: Span) -> Span {
        let (mul, lo) = (self.stride, -(self.padding as i64));
        let hi = lo + ((self.kernel - 1) * self.dilation) as i64 + 1;
        match outputs {
            Span::Part(part) => Span::Part(Part { mul, lo, hi, ..part }),
            Span::Fixed { begin, end } => {
                let clip = |at: i64| at.clamp(0, self.input as i64) as u64;
                let (begin, end) = (mul as i64 * begin as i64 + lo, mul as i64 * (end as i64 - 1) + hi);
                Span::Fixed { begin: clip(begin), end: clip(end) }
            }
        }
    }
}
