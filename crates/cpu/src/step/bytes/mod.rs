//! Convolutions and products of bytes (`kernel/bytes`): images have their channels last, so that the channels of a
//! window's row are neighbours, and results lie as the next layer reads them. A product is a convolution of one row of
//! pixels.
//!
//! A task takes some rows of an image and some panels of columns. Windows are read where they lie, or the rows are copied
//! with their padding into a thread's own room first (`stage.rs`). The zero point of the operand costs nothing: the sums of
//! the weights stand behind them, times the zero point they are taken off.

#![allow(unsafe_code)]

pub mod pack;
pub mod stage;

use super::Step;
use super::conv::Area;
use crate::allocation::Line;
use crate::exec::{Memory, Run};
use crate::kernel::bytes::{Depthwise, Finish, HALF_PANEL, Output, PANEL, Residual, Tile, Tiles};
use crate::kernel::gemm::{RowSplit, split_rows};
use pack::Pack;
use stage::Stage;
use std::cell::RefCell;

pub struct Bytes {
    pub images: usize,
    /// Rows and columns of the result; one row where rows need not be told apart.
    pub rows: usize,
    pub columns: usize,
    pub stage: Stage,
    pub pack: Pack,
    /// Of each group of the packed weights, for windows; of each element of the window, for depthwise ones.
    pub runs: Vec<Vec<crate::kernel::bytes::Run>>,
    pub tiles: &'static Tiles,
    pub low: f32,
    pub high: f32,
    pub residual: Option<Residual>,
    pub output: Output,
    /// Of the sums as they are defined.
    pub multiply_adds: u64,
}

/// Bytes of input that a task goes over once per panel: a quarter of a usual L2 cache.
const TASK_BYTES: usize = 256 << 10;

thread_local! {
    static ROOM: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Operands: packed weights, x, its zero point (i32), what is added to sums (i32), scales and shifts (f32), perhaps the
/// residual. All by column have whole panels.
pub const RESIDUAL: usize = 6;

impl Bytes {
    pub fn name(&self) -> &'static str {
        match (self.pack.depthwise, self.images * self.rows, self.stage.copies) {
            (true, ..) => "int8 depthwise",
            (false, 1, false) => "int8 gemm",
            _ => "int8 conv",
        }
    }

    /// Rows of a task, or tiles where there is only one row.
    fn units(&self) -> (usize, usize) {
        if self.rows == 1 && !self.stage.copies {
            let tiles = self.split(self.columns).tiles;
            let tile_bytes = self.stage.pixel_bytes() * self.tiles.kernels.len();
            return (tiles, per_task(tiles, tile_bytes));
        }
        (self.rows, per_task(self.rows, self.stage.task_row_bytes()))
    }

    fn split(&self, columns: usize) -> RowSplit {
        split_rows(columns, self.tiles.kernels.len())
    }
}

fn per_task(units: usize, unit_bytes: usize) -> usize {
    let most = (TASK_BYTES / unit_bytes.max(1)).clamp(1, units.max(1));
    units.div_ceil(units.div_ceil(most).max(1)).max(1)
}

pub fn run(bytes: &Bytes, step: &Step, run: &mut Run) {
    if step.outputs[0].num_elements() == 0 {
        return;
    }
    let (units, mut per_task) = bytes.units();
    let (threads, panels) = (run.pool.threads(), bytes.pack.panels());
    let wanted = if threads == 1 { 1 } else { threads * 4 };
    if bytes.images * units.div_ceil(per_task) * panels < wanted {
        per_task = units.div_ceil(wanted).max(1);
    }
    let parts = units.div_ceil(per_task);
    let cuts = wanted.div_ceil(bytes.images * parts).clamp(1, panels);
    let memory = run.memory;
    run.pool.run(bytes.images * parts * cuts, &|index| {
        let (rest, cut) = (index / cuts, index % cuts);
        let first = rest % parts * per_task;
        let task = Task {
            bytes,
            step,
            memory,
            image: rest / parts,
            units: (first, per_task.min(units - first)),
            panels: (cut * panels / cuts, (cut + 1) * panels / cuts),
        };
        ROOM.with_borrow_mut(|room| task.run(room));
    });
}

struct Task<'a> {
    bytes: &'a Bytes,
    step: &'a Step,
    memory: Memory<'a>,
    image: usize,
    units: (usize, usize),
    panels: (usize, usize),
}

/// A panel's vectors, with the operand's zero point taken off.
#[derive(Clone, Copy)]
struct Columns {
    sums: [i32; PANEL],
    scale: [f32; PANEL],
    shift: [f32; PANEL],
}

impl Task<'_> {
    fn run(&self, room: &mut Vec<Line>) {
        let (bytes, stage) = (self.bytes, &self.bytes.stage);
        let x = self.address(1).cast_const().wrapping_add(self.image * stage.image_bytes());
        let (first, count) = self.units;
        if !stage.copies && bytes.rows == 1 {
            let split = bytes.split(bytes.columns);
            let column = split.begin(first);
            let area = Area { first: 0, rows: 1, column, columns: split.begin(first + count) - column };
            return self.area(area, x);
        }
        let area = Area { first, rows: count, column: 0, columns: bytes.columns };
        if !stage.copies {
            return self.area(area, x);
        }
        let lines = stage.room_bytes(count).div_ceil(64);
        if room.len() < lines {
            room.resize(lines, Line::ZERO);
        }
        let to = room.as_mut_ptr().cast::<u8>();
        // SAFETY: a scalar; the image lies in the operand, the room holds the rows.
        unsafe {
            let filler = *self.address(2).cast::<i32>() as u8;
            stage.fill(x, filler, (first, count), to);
        }
        // The room's rows begin at the task's first.
        self.area(area, to.cast_const().wrapping_sub(first * stage.row_step()));
    }

    fn address(&self, operand: usize) -> *mut u8 {
        self.memory.address(&self.step.inputs[operand])
    }

    /// All panels of the area; `x` is where the window of the image's first pixel begins.
    fn area(&self, area: Area, x: *const u8) {
        for panel in self.panels.0..self.panels.1 {
            let columns = self.columns(panel);
            let finish = Finish {
                sums: &columns.sums,
                scale: &columns.scale,
                shift: &columns.shift,
                low: self.bytes.low,
                high: self.bytes.high,
                residual: self.bytes.residual.as_ref(),
                output: self.bytes.output,
            };
            if self.bytes.pack.depthwise {
                self.depthwise_panel(panel, area, x, &finish);
            } else {
                self.panel(panel, area, x, &finish);
            }
        }
    }

    fn columns(&self, panel: usize) -> Columns {
        let pack = &self.bytes.pack;
        let (first, columns) = pack.columns(panel);
        let mut all = Columns { sums: [0; PANEL], scale: [0.0; PANEL], shift: [0.0; PANEL] };
        // SAFETY: the operands have a number per column, the zero point is a scalar.
        unsafe {
            let zero = *self.address(2).cast::<i32>();
            let totals = self.address(0).add(pack.weight_bytes()).cast::<i32>().add(first);
            let [added, scale, shift] =
                [3, 4, 5].map(|operand| self.address(operand).cast::<i32>().add(first));
            for index in 0..columns {
                let taken = zero.wrapping_mul(*totals.add(index));
                all.sums[index] = (*added.add(index)).wrapping_sub(taken);
                all.scale[index] = *scale.cast::<f32>().add(index);
                all.shift[index] = *shift.cast::<f32>().add(index);
            }
        }
        all
    }

    /// The addresses of a pixel's results from a column on, and of its residual.
    fn results(&self, pixel: usize, column: usize) -> (*mut u8, *const u8) {
        let bytes = self.bytes;
        let at = (self.image * bytes.rows * bytes.columns + pixel) * bytes.pack.outputs + column;
        let y = self.address_of_result().wrapping_add(at * bytes.output.size_bytes());
        let residual = match bytes.residual {
            Some(_) => self.address(RESIDUAL).cast_const().wrapping_add(at),
            None => std::ptr::null(),
        };
        (y, residual)
    }

    fn address_of_result(&self) -> *mut u8 {
        self.memory.address(&self.step.outputs[0])
    }

    fn panel(&self, panel: usize, area: Area, x: *const u8, finish: &Finish) {
        let (bytes, stage) = (self.bytes, &self.bytes.stage);
        let (column, columns) = bytes.pack.columns(panel);
        let split = bytes.split(area.columns);
        let runs = &bytes.runs[bytes.pack.group(panel)];
        let w = self.address(0).cast_const().wrapping_add(bytes.pack.offset(panel)).cast::<i8>();
        for row in area.first..area.first + area.rows {
            for tile in 0..split.tiles {
                let at = area.column + split.begin(tile);
                let (y, residual) = self.results(row * bytes.columns + at, column);
                let call = Tile {
                    x: x.wrapping_add(row * stage.row_step() + at * stage.pixel_step()),
                    pixel: stage.pixel_step(),
                    runs,
                    w,
                    width: if columns > HALF_PANEL { PANEL } else { HALF_PANEL },
                    columns,
                    finish,
                    y,
                    y_pixel: bytes.pack.outputs,
                    residual,
                };
                // SAFETY: runs and stage were made for each other (`plan/bytes`): the windows of all pixels of the area
                // lie in the operand or the room. The results are this task's alone, the level is one the processor has.
                unsafe { bytes.tiles.kernels[split.height(tile) - 1](&call) };
            }
        }
    }

    fn depthwise_panel(&self, panel: usize, area: Area, x: *const u8, finish: &Finish) {
        let (bytes, stage) = (self.bytes, &self.bytes.stage);
        let (column, columns) = bytes.pack.columns(panel);
        let offsets: Vec<usize> = bytes.runs[0].iter().map(|run| run.offset + column).collect();
        let w = self.address(0).cast_const().wrapping_add(column).cast::<i8>();
        for row in area.first..area.first + area.rows {
            let (y, residual) = self.results(row * bytes.columns + area.column, column);
            let call = Depthwise {
                x: x.wrapping_add(row * stage.row_step() + area.column * stage.pixel_step()),
                pixel: stage.pixel_step(),
                pixels: area.columns,
                offsets: &offsets,
                w,
                w_step: bytes.pack.outputs.next_multiple_of(HALF_PANEL),
                channels: columns,
                finish,
                y,
                y_pixel: bytes.pack.outputs,
                residual,
            };
            // SAFETY: as for tiles; the room ends with more than 16 bytes that nobody needs.
            unsafe { (bytes.tiles.depthwise)(&call) };
        }
    }
}
