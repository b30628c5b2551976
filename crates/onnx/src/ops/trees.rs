//! TreeEnsemble: all trees walk down at once, one level at a time, by gathers from tables of nodes. Leaves stand
//! behind the nodes and lead to themselves.

use crate::ctx::Ctx;
use crate::errors;
use crate::import::Data;
use crate::tensors;
use pando_base::{CompareFn, DType, ReduceFn, Result, Tensor};
use pando_graph::{Dim, Dims, TensorType, ValueId};

/// Deeper trees are refused.
const MAX_DEPTH: usize = 256;
/// The mode of a node that asks whether a value is a member of a set.
const MEMBER: i64 = 6;

/// A table entry per node, then per leaf.
struct Trees {
    nodes: usize,
    features: Vec<i64>,
    modes: Vec<i64>,
    splits: Vec<f64>,
    /// Where to go if the condition holds, and if not.
    next: [Vec<i64>; 2],
    missing_is_true: Vec<i64>,
    /// The sets of members, as wide as the largest, filled up with NaN.
    members: Vec<Vec<f64>>,
    roots: Vec<i64>,
}

fn numbers(c: &Ctx, name: &str) -> Result<Option<Tensor>> {
    match c.attr(name).and_then(|attribute| attribute.t.as_deref()) {
        None => Ok(None),
        Some(proto) => match tensors::read(proto, None)? {
            Data::Numbers(tensor, _) => Ok(Some(tensor)),
            Data::Text(_) => Err(errors::wrong_attribute(name, "it must hold numbers")),
        },
    }
}

fn required(c: &Ctx, name: &str) -> Result<Vec<f64>> {
    Ok(numbers(c, name)?.ok_or_else(|| errors::missing_attribute(name))?.to_f64())
}

impl Trees {
    fn read(c: &Ctx, leaves: usize) -> Result<Trees> {
        let ints = |name: &str| c.ints(name).ok_or_else(|| errors::missing_attribute(name));
        let features = ints("nodes_featureids")?;
        let nodes = features.len();
        let next = |side: &str| -> Result<Vec<i64>> {
            let ids = ints(&format!("nodes_{side}nodeids"))?;
            let is_leaf = ints(&format!("nodes_{side}leafs"))?;
            let place =
                |(&id, &leaf): (&i64, &i64)| id.saturating_add(if leaf != 0 { nodes as i64 } else { 0 });
            Ok(ids.iter().zip(&is_leaf).map(place).collect())
        };
        let modes: Vec<i64> = required(c, "nodes_modes")?.into_iter().map(|mode| mode as i64).collect();
        let mut trees = Trees {
            nodes,
            splits: required(c, "nodes_splits")?,
            next: [next("true")?, next("false")?],
            missing_is_true: c.ints("nodes_missing_value_tracks_true").unwrap_or_else(|| vec![0; nodes]),
            members: members(c, &modes)?,
            roots: ints("tree_roots")?,
            features,
            modes,
        };
        let same = |length: usize| length == nodes;
        let fits = same(trees.modes.len())
            && same(trees.splits.len())
            && same(trees.missing_is_true.len())
            && trees.next.iter().all(|next| same(next.len()));
        let inside = |at: &i64| (0..(nodes + leaves) as i64).contains(at);
        if !fits || !trees.next.iter().flatten().chain(&trees.roots).all(inside) {
            return Err(errors::invalid("the lists of the trees' nodes do not fit each other"));
        }
        trees.append_leaves(leaves);
        Ok(trees)
    }

    fn append_leaves(&mut self, leaves: usize) {
        let total = self.nodes + leaves;
        self.features.resize(total, 0);
        self.modes.resize(total, 0);
        self.splits.resize(total, 0.0);
        self.missing_is_true.resize(total, 0);
        self.members.resize(total, Vec::new());
        self.next.iter_mut().for_each(|next| next.extend((self.nodes..total).map(|leaf| leaf as i64)));
    }

    /// The longest way from a root to a leaf; an error if there is a circle.
    fn depth(&self) -> Result<usize> {
        let mut level: Vec<i64> = self.roots.clone();
        for depth in 0..=MAX_DEPTH {
            level.retain(|&at| at < self.nodes as i64);
            level.sort_unstable();
            level.dedup();
            if level.is_empty() {
                return Ok(depth);
            }
            level = level.iter().flat_map(|&at| self.next.each_ref().map(|next| next[at as usize])).collect();
        }
        Err(errors::too_much_work(format!(
            "a tree deeper than {MAX_DEPTH}, or one that leads back to itself,"
        )))
    }
}

/// Sets follow each other in `membership_values`, each ended by NaN, one per node that asks.
fn members(c: &Ctx, modes: &[i64]) -> Result<Vec<Vec<f64>>> {
    let values = numbers(c, "membership_values")?.map_or(vec![], |values| values.to_f64());
    let mut sets = values.split(|value| value.is_nan());
    let set = |&mode: &i64| match mode == MEMBER {
        true => sets.next().map(<[f64]>::to_vec).unwrap_or_default(),
        false => vec![],
    };
    Ok(modes.iter().map(set).collect())
}

/// A table as a constant, looked up at `at`.
struct Walk {
    x: ValueId,
    dtype: DType,
    /// `[rows, trees]`.
    at: ValueId,
}

impl Walk {
    fn ints(&self, c: &mut Ctx, table: &[i64]) -> Result<ValueId> {
        let table = c.ints_const(DType::I64, &[table.len() as u64], table);
        c.b.gather(table, self.at, 0)
    }

    fn floats(&self, c: &mut Ctx, table: &[f64]) -> Result<ValueId> {
        let table = c.floats_const(self.dtype, &[table.len() as u64], table);
        c.b.gather(table, self.at, 0)
    }

    /// One level down.
    fn step(&mut self, c: &mut Ctx, trees: &Trees) -> Result<()> {
        let feature = self.ints(c, &trees.features)?;
        let value = super::index::gather_elements_at(c, self.x, feature, 1)?;
        let mode = self.ints(c, &trees.modes)?;
        let split = self.floats(c, &trees.splits)?;
        let mut holds = self.missing(c, trees, value)?;
        for asked in 0..=MEMBER {
            if !trees.modes[..trees.nodes].contains(&asked) {
                continue;
            }
            let answer = match asked {
                MEMBER => self.is_member(c, trees, value)?,
                _ => c.b.compare(comparison(asked), value, split)?,
            };
            let own = c.cmp_n(CompareFn::Eq, mode, asked as f64)?;
            let answer = c.b.and(own, answer)?;
            holds = c.b.or(holds, answer)?;
        }
        let (on_true, on_false) = (self.ints(c, &trees.next[0])?, self.ints(c, &trees.next[1])?);
        self.at = c.b.select(holds, on_true, on_false)?;
        Ok(())
    }

    fn missing(&self, c: &mut Ctx, trees: &Trees, value: ValueId) -> Result<ValueId> {
        let tracks = self.ints(c, &trees.missing_is_true)?;
        let tracks = c.cmp_n(CompareFn::Ne, tracks, 0.0)?;
        let missing = c.b.compare(CompareFn::Ne, value, value)?;
        c.b.and(tracks, missing)
    }

    fn is_member(&self, c: &mut Ctx, trees: &Trees, value: ValueId) -> Result<ValueId> {
        let width = trees.members.iter().map(Vec::len).max().unwrap_or(0);
        let padded = trees
            .members
            .iter()
            .flat_map(|set| set.iter().copied().chain(std::iter::repeat_n(f64::NAN, width - set.len())));
        let table: Vec<f64> = padded.collect();
        let table = c.floats_const(self.dtype, &[trees.members.len() as u64, width as u64], &table);
        let sets = c.b.gather(table, self.at, 0)?;
        let value = c.b.broadcast(value, c.dims(sets), &[0, 1])?;
        let equal = c.b.compare(CompareFn::Eq, value, sets)?;
        c.b.reduce(ReduceFn::Or, equal, &[2])
    }
}

fn comparison(mode: i64) -> CompareFn {
    match mode {
        0 => CompareFn::Le,
        1 => CompareFn::Lt,
        2 => CompareFn::Ge,
        3 => CompareFn::Gt,
        4 => CompareFn::Eq,
        _ => CompareFn::Ne,
    }
}

pub(super) fn tree_ensemble(c: &mut Ctx) -> Result<ValueId> {
    let x = c.x(0)?;
    c.need_rank(x, 2..=2)?;
    let weights = required(c, "leaf_weights")?;
    let targets = c.ints("leaf_targetids").ok_or_else(|| errors::missing_attribute("leaf_targetids"))?;
    if targets.len() != weights.len() {
        return Err(errors::invalid("leaves differ in number from their targets"));
    }
    let trees = Trees::read(c, weights.len())?;
    let (depth, count) = (trees.depth()?, trees.roots.len() as u64);
    let roots = c.ints_const(DType::I64, &[count], &trees.roots);
    let dims = Dims::from_iter([c.dims(x)[0].clone(), count.into()]);
    let at = c.b.broadcast(roots, dims, &[1])?;
    let mut walk = Walk { x, dtype: c.dtype(x), at };
    for _ in 0..depth {
        walk.step(c, &trees)?;
    }
    // Entries before the leaves are never asked for.
    let of_leaves = |leaves: &[f64]| [vec![0.0; trees.nodes], leaves.to_vec()].concat();
    let weight = walk.floats(c, &of_leaves(&weights))?;
    let target: Vec<i64> = std::iter::repeat_n(0, trees.nodes).chain(targets).collect();
    let target = walk.ints(c, &target)?;
    let result = aggregated(c, weight, target, count)?;
    match c.int("post_transform", 0) {
        0 => Ok(result),
        1 => c.b.softmax(result, 1),
        2 => c.b.sigmoid(result),
        other => Err(errors::wrong_attribute("post_transform", format!("{other} is not supported"))),
    }
}

/// The trees' weights by target: `[rows, targets]`.
fn aggregated(c: &mut Ctx, weight: ValueId, target: ValueId, trees: u64) -> Result<ValueId> {
    let targets = c.int("n_targets", 1).clamp(1, 1 << 20) as u64;
    let function = c.int("aggregate_function", 1);
    let (func, neutral) = match function {
        0 | 1 => (ReduceFn::Sum, 0.0),
        2 => (ReduceFn::Min, f64::INFINITY),
        3 => (ReduceFn::Max, f64::NEG_INFINITY),
        other => return Err(errors::wrong_attribute("aggregate_function", format!("{other} is not known"))),
    };
    let mut dims = c.dims(weight);
    dims.push(Dim::Known(targets));
    let (weight, target) =
        (c.b.broadcast(weight, dims.clone(), &[0, 1])?, c.b.broadcast(target, dims.clone(), &[0, 1])?);
    let column = c.b.iota(TensorType { dtype: DType::I64, dims }, 2)?;
    let own = c.b.compare(CompareFn::Eq, target, column)?;
    let other = c.b.splat_like(weight, neutral)?;
    let weight = c.b.select(own, weight, other)?;
    let result = c.b.reduce(func, weight, &[1])?;
    if function == 0 { c.over_n(result, trees as f64) } else { Ok(result) }
}
