//! Elementwise ops fused into one pass: a small register machine over blocks of elements that stay in the L1
//! cache. Positions are row-major positions in the result; each input says where its element for a position
//! is. Floats of 16 bits are f32 in registers, rounded after every op as their meaning demands.
//!
//! The floor is one L1 load per operand and one store per op and element; a block of [`BLOCK`] f32 makes the
//! dispatch of an op (some 3 ns) small against its loop (some 20 ns).

#![allow(unsafe_code)]

use crate::kernel::elementwise::{BinaryLoop, SelectLoop, UnaryLoop};
use crate::kernel::gemm::prefetch;
use crate::kernel::lanes::LANES;
use crate::view::{Sizes, Strides, View, collapse};
use smallvec::{SmallVec, smallvec};

/// Elements per block. Ten registers of f32 fill 20 KiB of an L1 cache of 32.
pub const BLOCK: usize = 512;
/// Shorter lines of broadcast inputs are not worth a block of their own.
const WORTHY_LINE: usize = 64;

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Input(usize),
    Register(usize),
    /// The result itself: the last instruction writes there.
    Output,
}

#[derive(Clone, Copy)]
pub enum Instr {
    Unary(UnaryLoop, Slot, Slot),
    Binary(BinaryLoop, [Slot; 2], Slot),
    Select(SelectLoop, [Slot; 3], Slot),
}

impl Instr {
    fn slots_mut(&mut self) -> SmallVec<[&mut Slot; 4]> {
        match self {
            Instr::Unary(_, x, y) => smallvec![x, y],
            Instr::Binary(_, [a, b], y) => smallvec![a, b, y],
            Instr::Select(_, [c, a, b], y) => smallvec![c, a, b, y],
        }
    }
}

/// Where an input's elements are.
#[derive(Clone, Debug)]
pub enum Access {
    /// Position p is element p.
    Dense,
    /// One element for all positions.
    Uniform,
    /// Collapsed sizes and strides.
    Strided(Sizes, Strides),
}

#[derive(Clone, Debug)]
pub struct Input {
    pub access: Access,
    pub size_bytes: usize,
}

impl Input {
    /// Of a view that has the result's sizes.
    pub fn of(view: &View) -> Input {
        let size_bytes = view.dtype.size_bytes() as usize;
        let (sizes, strides) = collapse(&view.sizes, &view.strides);
        let access = match (sizes.as_slice(), strides.as_slice()) {
            ([1], _) | (_, [0]) => Access::Uniform,
            (_, [1]) => Access::Dense,
            _ => Access::Strided(sizes, strides),
        };
        Input { access, size_bytes }
    }
}

pub struct Program {
    pub inputs: Vec<Input>,
    pub instrs: Vec<Instr>,
    pub registers: usize,
    pub output_bytes: usize,
}

/// Room for the registers of one thread.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Block([u64; BLOCK]);

const BLOCK_BYTES: usize = size_of::<Block>();

/// Runs of positions, equally far apart.
pub struct Runs {
    /// The first one's first position.
    pub begin: usize,
    /// Of each.
    pub length: usize,
    pub count: usize,
    /// Positions from one to the next.
    pub distance: usize,
    /// Bytes that the first input and the output move from one to the next besides.
    pub input_shift: isize,
    pub output_shift: isize,
}

/// Runs between asking for memory and using it: some 500 ns.
const PREFETCH_RUNS: usize = 4;

/// What all runs share: the registers, where blocks of the inputs are, and [`Program::line`].
struct Room {
    registers: *mut u8,
    sources: SmallVec<[*const u8; 8]>,
    line: usize,
}

thread_local! {
    static REGISTERS: std::cell::RefCell<Vec<Block>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Program {
    /// Renumbers the inputs so that one comes first, the others keeping their order.
    pub fn move_input_first(&mut self, input: usize) {
        let moved = self.inputs.remove(input);
        self.inputs.insert(0, moved);
        let renumber = |slot: &mut Slot| {
            if let Slot::Input(index) = slot {
                *index = match (*index).cmp(&input) {
                    std::cmp::Ordering::Less => *index + 1,
                    std::cmp::Ordering::Equal => 0,
                    std::cmp::Ordering::Greater => *index,
                };
            }
        };
        self.instrs.iter_mut().flat_map(Instr::slots_mut).for_each(renumber);
    }

    /// Makes the program fit for an input that is the output itself: what is read by the instruction that writes
    /// the output does not overlap it, since loops over overlapping memory are not vectorised.
    pub fn write_last(&mut self, input: usize, copy: UnaryLoop) {
        let Some(last) = self.instrs.last_mut() else { return };
        let made = Slot::Register(self.registers);
        if last.slots_mut().iter().any(|slot| **slot == Slot::Input(input)) {
            last.slots_mut().into_iter().filter(|slot| **slot == Slot::Output).for_each(|slot| *slot = made);
            self.registers += 1;
            self.instrs.push(Instr::Unary(copy, made, Slot::Output));
        }
    }

    /// One program that does the work of both: the result of this one is the first input of the next.
    pub fn then(self, next: Program) -> Program {
        let (inputs, registers) = (self.inputs.len(), self.registers);
        let moved = |slot: &mut Slot| match slot {
            Slot::Input(0) => *slot = Slot::Register(registers),
            Slot::Input(index) => *index += inputs - 1,
            Slot::Register(index) => *index += registers + 1,
            Slot::Output => {}
        };
        let mut first = self.instrs;
        for slot in first.iter_mut().flat_map(Instr::slots_mut) {
            if *slot == Slot::Output {
                *slot = Slot::Register(registers);
            }
        }
        let mut second = next.instrs;
        second.iter_mut().flat_map(Instr::slots_mut).for_each(moved);
        Program {
            inputs: self.inputs.into_iter().chain(next.inputs.into_iter().skip(1)).collect(),
            instrs: first.into_iter().chain(second).collect(),
            registers: registers + 1 + next.registers,
            output_bytes: next.output_bytes,
        }
    }

    /// Computes results `begin..begin + count`, writing them at `output`, which is the address of result 0.
    ///
    /// # Safety
    /// `inputs` are the addresses of the first elements of views with the accesses stated; the positions
    /// lie inside them and inside the output, which nobody else uses at these positions. An input may be
    /// the output itself if it is dense and of its element size.
    pub unsafe fn run(&self, inputs: &[*const u8], output: *mut u8, begin: usize, count: usize) {
        let runs = Runs { begin, length: count, count: 1, distance: 0, input_shift: 0, output_shift: 0 };
        // SAFETY: passed on.
        unsafe { self.run_all(inputs, output, &runs) };
    }

    /// Computes results of several runs of positions.
    ///
    /// # Safety
    /// As [`Program::run`], for each run, whose addresses are shifted as the runs say.
    pub unsafe fn run_all(&self, inputs: &[*const u8], output: *mut u8, runs: &Runs) {
        if runs.length == 0 {
            return;
        }
        REGISTERS.with_borrow_mut(|registers| {
            let needed = self.registers + self.inputs.len();
            if registers.len() < needed {
                registers.resize(needed, Block([0; BLOCK]));
            }
            let base = registers.as_mut_ptr().cast::<u8>();
            let mut addresses: SmallVec<[*const u8; 8]> = SmallVec::from_slice(inputs);
            let mut output = output;
            // SAFETY: passed on; `base` has a block for every register and input.
            unsafe {
                let mut room = Room { registers: base, sources: SmallVec::new(), line: self.line() };
                self.fill_uniform(inputs, runs.length, &mut room);
                for run in 0..runs.count {
                    let begin = runs.begin + run * runs.distance;
                    if run + PREFETCH_RUNS < runs.count {
                        self.prefetch(&addresses, output, runs, begin + PREFETCH_RUNS * runs.distance);
                    }
                    self.run_blocks(&addresses, output, (begin, runs.length), &mut room);
                    if let Some(first) = addresses.first_mut() {
                        *first = first.wrapping_offset(runs.input_shift);
                    }
                    output = output.wrapping_offset(runs.output_shift);
                }
            }
        });
    }

    /// The block of an input behind those of the registers.
    fn loaded(&self, registers: *mut u8, index: usize) -> *mut u8 {
        registers.wrapping_add((self.registers + index) * BLOCK_BYTES)
    }

    /// Fills the blocks of inputs that are one element.
    ///
    /// # Safety
    /// As [`Program::run_all`], for the room of its registers.
    unsafe fn fill_uniform(&self, inputs: &[*const u8], length: usize, room: &mut Room) {
        for (index, input) in self.inputs.iter().enumerate() {
            let loaded = self.loaded(room.registers, index);
            if matches!(input.access, Access::Uniform) {
                // SAFETY: a uniform input has one element; a block holds BLOCK of any size.
                unsafe { fill(inputs[index], loaded, input.size_bytes, BLOCK.min(length)) };
            }
            room.sources.push(loaded.cast_const());
        }
    }

    /// Asks for the memory that a later run will use besides the first input: runs are far apart and too short for the
    /// processor to see a pattern (a residual of 802,816 elements took 0.9 ms longer).
    fn prefetch(&self, inputs: &[*const u8], output: *mut u8, runs: &Runs, begin: usize) {
        for (input, &address) in self.inputs.iter().zip(inputs).skip(1) {
            if matches!(input.access, Access::Dense) {
                let address = address.wrapping_add(begin * input.size_bytes);
                prefetch(address, runs.length * input.size_bytes);
            }
        }
        let shift = runs.output_shift * PREFETCH_RUNS as isize;
        let output = output.wrapping_offset(shift).wrapping_add(begin * self.output_bytes);
        prefetch(output.cast_const(), runs.length * self.output_bytes);
    }

    /// # Safety
    /// As [`Program::run`].
    unsafe fn run_blocks(
        &self,
        inputs: &[*const u8],
        output: *mut u8,
        (begin, count): (usize, usize),
        room: &mut Room,
    ) {
        let (registers, line) = (room.registers, room.line);
        let mut position = begin;
        while position < begin + count {
            let n = BLOCK.min(begin + count - position).min(line - position % line);
            for (index, input) in self.inputs.iter().enumerate() {
                room.sources[index] = match input.access {
                    Access::Dense => inputs[index].wrapping_add(position * input.size_bytes),
                    Access::Uniform => continue,
                    // SAFETY: positions are inside the view; a block holds BLOCK elements of any size.
                    Access::Strided(..) => unsafe {
                        input.load(inputs[index], position, n, self.loaded(registers, index))
                    },
                };
            }
            let address = |slot: Slot| match slot {
                Slot::Input(index) => room.sources[index],
                // SAFETY: registers are numbered below their count.
                Slot::Register(index) => unsafe { registers.add(index * BLOCK_BYTES) }.cast_const(),
                Slot::Output => output.wrapping_add(position * self.output_bytes).cast_const(),
            };
            for instr in &self.instrs {
                // SAFETY: every slot has room for n elements of the type that the instruction, made for
                // it by `plan/program.rs`, reads or writes.
                unsafe { execute(instr, address, n) };
            }
            position += n;
        }
    }

    /// Blocks end at multiples of it, so that rows of broadcast inputs are read where they lie: the length of
    /// their lines, if it is worth a block.
    fn line(&self) -> usize {
        let lines = self.inputs.iter().filter_map(|input| match &input.access {
            Access::Strided(sizes, strides) if matches!(strides.last(), Some(1)) => sizes.last().copied(),
            _ => None,
        });
        lines.max().filter(|&line| line >= WORTHY_LINE).unwrap_or(usize::MAX)
    }
}

impl Input {
    /// The address of `n` neighbours that are the elements at positions from `position` on: in the input
    /// itself if it has them so, or copied to `room`.
    ///
    /// # Safety
    /// The positions are inside the view that starts at `from`; `room` has room for n elements.
    unsafe fn load(&self, from: *const u8, position: usize, n: usize, room: *mut u8) -> *const u8 {
        let Access::Strided(sizes, strides) = &self.access else { return from };
        let last = sizes.len() - 1;
        if strides[last] == 1 && position % sizes[last] + n <= sizes[last] {
            let (mut rest, mut offset) = (position, 0isize);
            for dim in (1..=last).rev() {
                offset += (rest % sizes[dim]) as isize * strides[dim];
                rest /= sizes[dim];
            }
            offset += rest as isize * strides[0];
            return from.wrapping_offset(offset * self.size_bytes as isize);
        }
        // SAFETY: passed on.
        unsafe { gather(from, sizes, strides, self.size_bytes, position, n, room) };
        room
    }
}

/// # Safety
/// Each slot has room for `n` elements of the instruction's type, aligned to them.
unsafe fn execute(instr: &Instr, address: impl Fn(Slot) -> *const u8, n: usize) {
    // SAFETY: as stated.
    unsafe {
        match *instr {
            Instr::Unary(kernel, a, y) => kernel(address(a), address(y).cast_mut(), n),
            Instr::Binary(kernel, [a, b], y) => kernel(address(a), address(b), address(y).cast_mut(), n),
            Instr::Select(kernel, [c, a, b], y) => {
                kernel(address(c), address(a), address(b), address(y).cast_mut(), n);
            }
        }
    }
}

/// # Safety
/// `from` has one element of `size` bytes, `to` room for `n`.
pub(super) unsafe fn fill(from: *const u8, to: *mut u8, size: usize, n: usize) {
    // SAFETY: as stated; reads and writes of any alignment.
    unsafe {
        match size {
            1 => to.write_bytes(from.read(), n),
            2 => fill_as::<u16>(from, to, n),
            4 => fill_as::<u32>(from, to, n),
            _ => fill_as::<u64>(from, to, n),
        }
    }
}

/// # Safety
/// As [`fill`].
unsafe fn fill_as<T: Copy>(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: as stated.
    unsafe {
        let value = from.cast::<T>().read_unaligned();
        std::slice::from_raw_parts_mut(to.cast::<T>(), n).fill(value);
    }
}

/// Copies the elements at positions `begin..begin + n` of a strided view.
///
/// # Safety
/// The positions are inside the view that starts at `from`; `to` has room for n elements.
pub unsafe fn gather(
    from: *const u8,
    sizes: &[usize],
    strides: &[isize],
    size: usize,
    begin: usize,
    n: usize,
    to: *mut u8,
) {
    // SAFETY: passed on.
    unsafe {
        match size {
            1 => gather_as::<u8>(from, sizes, strides, begin, n, to),
            2 => gather_as::<u16>(from, sizes, strides, begin, n, to),
            4 => gather_as::<u32>(from, sizes, strides, begin, n, to),
            _ => gather_as::<u64>(from, sizes, strides, begin, n, to),
        }
    }
}

/// # Safety
/// As [`gather`].
unsafe fn gather_as<T: Copy>(
    from: *const u8,
    sizes: &[usize],
    strides: &[isize],
    begin: usize,
    n: usize,
    to: *mut u8,
) {
    let (from, mut to) = (from.cast::<T>(), to.cast::<T>());
    let last = sizes.len() - 1;
    let mut index = Sizes::from_elem(0, sizes.len());
    let (mut rest, mut offset) = (begin, 0isize);
    for dim in (0..=last).rev() {
        index[dim] = rest % sizes[dim];
        rest /= sizes[dim];
        offset += index[dim] as isize * strides[dim];
    }
    let mut left = n;
    // Rows of a block of channels that are all alike, as scales per channel are.
    let repeats = last > 0 && sizes[last] == LANES && strides[last] == 1 && strides[last - 1] == 0;
    while left > 0 {
        if repeats && index[last] == 0 && left >= LANES {
            let rows = (left / LANES).min(sizes[last - 1] - index[last - 1]);
            // SAFETY: a row of the view, and rows of `to`.
            unsafe {
                let row = from.offset(offset).cast::<[T; LANES]>().read_unaligned();
                (0..rows).for_each(|i| to.cast::<[T; LANES]>().add(i).write_unaligned(row));
                to = to.add(rows * LANES);
            }
            left -= rows * LANES;
            index[last - 1] += rows;
            carry(&mut index, &mut offset, last - 1, sizes, strides);
            continue;
        }
        let run = left.min(sizes[last] - index[last]);
        // SAFETY: the run stays inside the last dimension at the index reached, and inside `to`.
        unsafe {
            copy_run(from.offset(offset), strides[last], run, to);
            to = to.add(run);
        }
        left -= run;
        index[last] += run;
        offset += run as isize * strides[last];
        carry(&mut index, &mut offset, last, sizes, strides);
    }
}

/// Goes on to the next index of the dimensions before where `dim` has reached its end.
#[inline(always)]
fn carry(index: &mut Sizes, offset: &mut isize, mut dim: usize, sizes: &[usize], strides: &[isize]) {
    while dim > 0 && index[dim] == sizes[dim] {
        *offset += strides[dim - 1] - sizes[dim] as isize * strides[dim];
        index[dim] = 0;
        dim -= 1;
        index[dim] += 1;
    }
}

/// # Safety
/// `from` has `n` elements `stride` apart, `to` room for them.
#[inline(always)]
unsafe fn copy_run<T: Copy>(from: *const T, stride: isize, n: usize, to: *mut T) {
    // SAFETY: as stated.
    unsafe {
        match stride {
            1 => std::ptr::copy_nonoverlapping(from, to, n),
            0 => std::slice::from_raw_parts_mut(to, n).fill(*from),
            _ => (0..n).for_each(|i| to.add(i).write(*from.offset(i as isize * stride))),
        }
    }
}
