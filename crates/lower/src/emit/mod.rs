//! Emission: writes down what the plan decided as variables, compute sets and exchanges. Mechanical: no
//! costs are weighed here.

mod contract;
mod control;
mod elementwise;
mod host;
mod in_place;
mod lookup;
mod movement;
mod reduce;
mod scan;
mod scatter;
mod serial;
mod sort;
mod source;
mod sparse;
mod state;
mod window;

use crate::Options;
use crate::layouts::{holds, normalize};
use crate::plan::{Method, Plan};
use crate::prepare::value_name;
use crate::rooms::kind;
use pando_base::{DType, Shape, SideTable};
use pando_graph::{ConstData, ConstId, Func, Module, Node, NodeId, Op, ValueDef, ValueId};
use pando_machine::Machine;
use pando_tile::{
    ComputeSet, ComputeSetId, Copy, CopyMap, Exchange, ExchangeId, Grid, Group, Init, Kernel, Layout,
    Operand, Program, Region, Role, Step, Var, VarId,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// A program and what its variables stand for.
pub struct Emitted {
    pub program: Program,
    /// One per parameter of `main`.
    pub inputs: Vec<VarId>,
    /// One per result of `main`.
    pub outputs: Vec<VarId>,
    /// The module's constant behind a variable whose contents are supplied from outside.
    pub constants: SideTable<VarId, Option<ConstId>>,
    pub products: Products,
}

/// Which steps compute products, and of which kind ([`crate::rooms`]).
#[derive(Default)]
pub struct Products {
    pub of_sets: SideTable<ComputeSetId, Option<Arc<str>>>,
    pub of_exchanges: SideTable<ExchangeId, Option<Arc<str>>>,
}

/// The program of a planned module.
pub fn emit(module: &Module, plan: &Plan, machine: &Machine, options: &Options) -> Emitted {
    let func = module.funcs.values().next().expect("an inlined module has a function");
    let mut program = Program::new(func.name.clone(), machine.chip.tiles);
    program.replicas = options.replicas;
    program.prefetch = options.prefetch;
    let mut emitter = Emitter {
        module,
        scope: Scope::new(func, plan, true),
        options,
        program,
        constants: SideTable::default(),
        pending: Vec::new(),
        names: FxHashSet::default(),
        load: Vec::new(),
        store: Vec::new(),
        product: None,
        products: Products::default(),
    };
    let inputs = emitter.inputs();
    emitter.nodes();
    let outputs = emitter.outputs();
    emitter.iterate();
    Emitted {
        program: emitter.program,
        inputs,
        outputs,
        constants: emitter.constants,
        products: emitter.products,
    }
}

struct Emitter<'a> {
    module: &'a Module,
    scope: Scope<'a>,
    options: &'a Options,
    program: Program,
    constants: SideTable<VarId, Option<ConstId>>,
    /// Copies of the exchange to come.
    pending: Vec<Copy>,
    names: FxHashSet<String>,
    /// Transfers between the host and I/O tiles.
    load: Vec<Step>,
    store: Vec<Step>,
    /// The kind of the product that is being emitted.
    product: Option<Arc<str>>,
    products: Products,
}

/// The function whose nodes are being emitted.
struct Scope<'a> {
    func: &'a Func,
    plan: &'a Plan,
    /// Whether results go to the host.
    is_main: bool,
    /// Where each value is stored.
    homes: SideTable<ValueId, Option<VarId>>,
    /// The value that a variable of this function holds and nothing outside it reads.
    held: SideTable<VarId, Option<ValueId>>,
    last_reads: SideTable<ValueId, Option<NodeId>>,
    /// Copies of values in other layouts, and which node used them last.
    fetched: FxHashMap<(ValueId, Layout), (VarId, NodeId)>,
    node: NodeId,
    /// For parameters that a loop changes, the result that they become.
    becomes: SideTable<ValueId, Option<ValueId>>,
}

impl<'a> Scope<'a> {
    fn new(func: &'a Func, plan: &'a Plan, is_main: bool) -> Self {
        Scope {
            func,
            plan,
            is_main,
            homes: SideTable::default(),
            held: SideTable::default(),
            last_reads: state::last_reads(func, plan),
            fetched: FxHashMap::default(),
            node: pando_base::Id::from_index(0),
            becomes: SideTable::default(),
        }
    }

    /// A variable of this function's own holds a value.
    fn store(&mut self, value: ValueId, var: VarId) {
        self.homes[value] = Some(var);
        self.held[var] = Some(value);
    }

    /// Whether what a variable holds is read by the node at hand and no longer needed.
    fn is_last_read(&self, var: VarId) -> bool {
        let is_last =
            |value: ValueId| self.last_reads[value] == Some(self.node) && !self.func.results.contains(&value);
        self.held[var].is_some_and(is_last)
    }
}

/// Whether a copy is kept for another use: a large one is made again rather than kept through a whole pass, as a
/// forward pass's copies would be for the backward pass.
///
/// Assumption: 64 nodes are as many as a block of layers has.
fn is_worth_keeping(copy: &Var, last: NodeId, now: NodeId) -> bool {
    use pando_base::Id;
    now.index() - last.index() <= 64 || copy.max_tile_bytes() <= 1024
}

impl<'a> Emitter<'a> {
    fn nodes(&mut self) {
        let func = self.scope.func;
        let mut state = state::Settling::new(func, self.scope.plan, &self.options.state, self.scope.is_main);
        for (id, node) in func.nodes.iter() {
            self.scope.node = id;
            let kind = if self.product.is_none() { kind(func, node) } else { None };
            match kind {
                Some(kind) => {
                    self.product = Some(kind.into());
                    self.node(id, node);
                    self.product = None;
                }
                None => self.node(id, node),
            }
            for (param, value) in state.ready(id) {
                self.settle(param, value);
            }
        }
    }

    fn node(&mut self, id: NodeId, node: &Node) {
        let plan = self.scope.plan;
        let method = plan.methods[id].as_ref().expect("every node is planned");
        match (&node.op, method) {
            // Stored when first used, or computed where it is.
            (Op::Constant(_), _) | (_, Method::Fused | Method::Kept | Method::View) => {}
            (_, Method::Serial(plan)) => self.serial(node, plan),
            (Op::Dot(_), Method::Matmul(plan)) => self.matmul(node, plan),
            (Op::Conv(_), Method::Conv(plan)) => self.conv(node, plan),
            (Op::Gather { .. }, Method::Gather(plan)) => self.gather(node, plan),
            (Op::Scatter { .. }, Method::Scatter(plan)) => self.scatter(node, plan),
            (Op::Gather { axis }, Method::Direct) => self.row(*axis, node),
            (Op::Scatter { axis, .. }, Method::Direct) => self.replaced_row(*axis, node),
            (Op::Call(_), Method::Direct) => self.rounding(node),
            (Op::Call(_), Method::WindowGradient(window)) => self.window_gradient(window, node),
            (Op::Call(_), Method::Sparse(plan)) => self.sparse_matmul(node, plan),
            (Op::Sort(sort), Method::Sort(plan)) => self.sort(sort, node, plan),
            (Op::If { .. }, Method::Control(plans)) => self.branch(node, plans),
            (Op::Repeat { count, body }, Method::Control(plans)) => {
                self.repeat(*count, *body, node, &plans[0])
            }
            (Op::While { .. }, Method::Control(plans)) => self.while_loop(node, plans),
            (op, _) if op.is_elementwise() => self.elementwise(node),
            (Op::ReduceWindow(window), _) => self.reduce_window(window, node),
            (Op::Scan(scan), _) => self.scan(scan, node),
            (Op::Random { distribution, .. }, _) => self.random(*distribution, node),
            (Op::Iota { axis, .. }, _) => self.iota(*axis, node),
            (Op::Broadcast { axes, .. }, _) => self.broadcast(axes, node),
            (Op::Reduce { func, axes }, _) => self.reduce(*func, axes, node),
            (Op::Reshape { .. }, _) => self.reshape(node),
            (Op::Transpose { perm }, _) => self.transpose(perm, node),
            (Op::Slice(slice), _) => self.slice(slice, node),
            (Op::Pad(pad), _) => self.pad(pad, node),
            (Op::Concat { axis }, _) => self.concat(*axis, node),
            (Op::Reverse { axes }, _) => self.reverse(axes, node),
            (op, _) => unreachable!("{op} was refused as unsupported"),
        }
    }

    fn shape(&self, value: ValueId) -> Shape {
        self.scope.func.ty(value).shape().expect("sizes were checked to be numbers")
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.scope.func.ty(value).dtype
    }

    fn layout(&self, value: ValueId) -> Layout {
        self.scope.plan.layouts[value].clone().expect("every value is planned")
    }

    /// What a step that computes the node is called: operation and result.
    fn label(&self, node: &Node) -> String {
        format!("{}/{}", node.op, value_name(self.scope.func, node.results[0]).trim_start_matches('%'))
    }

    fn unique_name(&mut self, base: &str) -> String {
        let mut name = base.to_string();
        let mut next = 1;
        while !self.names.insert(name.clone()) {
            name = format!("{base}.{next}");
            next += 1;
        }
        name
    }

    fn base_name(&self, value: ValueId) -> String {
        let name = &self.scope.func.values[value].name;
        if name.is_empty() { format!("v{}", pando_base::Id::index(value)) } else { name.clone() }
    }

    fn push_var(&mut self, base: &str, dtype: DType, shape: Shape, layout: &Layout, role: Role) -> VarId {
        let name = self.unique_name(base);
        let home = normalize(layout, &shape);
        self.program.vars.push(Var { name, dtype, shape, home, role })
    }

    fn temp(&mut self, base: &str, dtype: DType, shape: Shape, layout: &Layout) -> VarId {
        self.push_var(base, dtype, shape, layout, Role::Temp)
    }

    /// Storage for the result of a node, in its planned layout.
    fn result(&mut self, node: &Node) -> VarId {
        self.result_of(node, 0)
    }

    fn result_of(&mut self, node: &Node, index: usize) -> VarId {
        self.stored(node.results[index])
    }

    /// Storage for a value, in its planned layout.
    fn stored(&mut self, value: ValueId) -> VarId {
        let is_output = self.scope.is_main && self.leaves_directly(value);
        let role = if is_output { Role::Output } else { Role::Temp };
        let var = self.push_var(
            &self.base_name(value),
            self.dtype(value),
            self.shape(value),
            &self.layout(value),
            role,
        );
        self.scope.store(value, var);
        var
    }

    /// The variable that stores a value; constants are made here, at their first use.
    fn home(&mut self, value: ValueId) -> VarId {
        if let Some(var) = self.scope.homes[value] {
            return var;
        }
        let ValueDef::Node(node, _) = self.scope.func.values[value].def else {
            unreachable!("inputs are stored first")
        };
        let Op::Constant(id) = self.scope.func.nodes[node].op else {
            unreachable!("{value} is used before it is computed")
        };
        let constant = &self.module.consts[id];
        let init = match &constant.data {
            ConstData::Splat(value) => Init::Splat(*value),
            // Small enough to be read in the text; everything else stays with the module.
            ConstData::Dense(tensor) if tensor.num_elements() <= 16 => Init::Dense(tensor.clone()),
            _ => Init::Extern,
        };
        let name = if constant.name.is_empty() { self.base_name(value) } else { constant.name.clone() };
        let layout = self.layout(value);
        let var = self.push_var(&name, self.dtype(value), self.shape(value), &layout, Role::Constant(init));
        self.constants[var] = Some(id);
        self.scope.homes[value] = Some(var);
        var
    }

    /// A variable that holds the value in the layout: where it is stored, or a copy that the next exchange
    /// makes.
    fn fetch(&mut self, value: ValueId, layout: &Layout) -> VarId {
        let shape = self.shape(value);
        let wanted = normalize(layout, &shape);
        let home = self.home(value);
        if holds(&self.program.vars[home].home, &wanted, &shape) {
            return home;
        }
        let node = self.scope.node;
        if let Some((var, last)) = self.scope.fetched.get_mut(&(value, wanted.clone()))
            && is_worth_keeping(&self.program.vars[*var], *last, node)
        {
            *last = node;
            return *var;
        }
        let name = format!("{}.at", self.base_name(value));
        let var = self.temp(&name, self.dtype(value), shape.clone(), &wanted);
        self.pending.push(Copy {
            src: home,
            dsts: SmallVec::from_slice(&[var]),
            map: CopyMap::identity(&shape),
        });
        self.scope.fetched.insert((value, wanted), (var, node));
        self.scope.held[var] = Some(value);
        var
    }

    /// Ends the exchange to come.
    fn flush(&mut self, name: &str) {
        if !self.pending.is_empty() {
            let copies = std::mem::take(&mut self.pending);
            let id = self.program.exchanges.push(Exchange { name: name.into(), copies });
            self.products.of_exchanges[id].clone_from(&self.product);
            self.program.body.push(Step::Exchange(id));
        }
    }

    /// Runs one group as a compute set of its own, after the exchange to come.
    fn compute(&mut self, name: &str, kernel: Kernel, grid: &Grid, operands: Vec<(VarId, Region)>) {
        self.flush(name);
        let operands = operands.into_iter().map(|(var, region)| Operand { var, region }).collect();
        let group = Group { kernel, grid: grid.clone(), operands };
        let id = self.program.compute_sets.push(ComputeSet { name: name.into(), groups: vec![group] });
        self.products.of_sets[id].clone_from(&self.product);
        self.program.body.push(Step::Compute(id));
    }
}
