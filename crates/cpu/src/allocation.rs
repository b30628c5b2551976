//! Zeroed memory, aligned to cache lines and on large pages where it is large: with pages of 4 KiB, weights that are
//! read once a run (170 MB of BERT-base in bf16) wait for the addresses of 42,000 pages; a product of 126 rows ran at
//! 220 GFLOP/s in place of 229.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

/// A cache line: what the threads' own rooms are made of.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Line([u8; 64]);

impl Line {
    pub const ZERO: Line = Line([0; 64]);
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Less is spread over few pages anyway.
const LARGE: usize = 4 << 20;

/// Bytes of a large page.
const LARGE_PAGE: usize = 2 << 20;

/// Large pages: strided reads, as of transposed matrices, otherwise wait for the address of every page.
#[cfg(target_os = "linux")]
fn ask_for_large_pages(allocation: NonNull<u8>, size: usize) {
    const PAGE: usize = 4096;
    if size < LARGE {
        return;
    }
    let begin = allocation.as_ptr().wrapping_add(allocation.as_ptr().align_offset(PAGE));
    // SAFETY: whole pages of our allocation; the advice changes no contents, and its refusal does no harm.
    unsafe { libc::madvise(begin.cast(), size - PAGE, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_allocation: NonNull<u8>, _size: usize) {}

/// Returns to the system what the allocator keeps of what was freed, such as weights that have been packed: large chunks
/// are not made of it, and a model would be in memory twice.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn let_go() {
    // SAFETY: touches memory only that nobody owns.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn let_go() {}

struct Allocation {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: owns its memory; who may write it is said where it is used.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    fn new(bytes: usize, align: usize) -> Allocation {
        // The allocator has zeroed pages for this alignment; for a larger one it would write zeros.
        let layout = Layout::from_size_align(bytes + align, 16).expect("a plan's size has been checked");
        // SAFETY: the size is not zero.
        let address = unsafe { std::alloc::alloc_zeroed(layout) };
        let address = NonNull::new(address).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        ask_for_large_pages(address, layout.size());
        Allocation { address, layout }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody else frees it.
        unsafe { std::alloc::dealloc(self.address.as_ptr(), self.layout) };
    }
}

/// Zeroed bytes, aligned to a cache line. Pages that nobody writes take no memory.
pub struct Bytes {
    allocation: Arc<Allocation>,
    /// Where they begin in it.
    offset: usize,
}

impl Bytes {
    pub fn new(bytes: usize) -> Bytes {
        let allocation = Allocation::new(bytes, LINE);
        let offset = allocation.address.as_ptr().align_offset(LINE);
        Bytes { allocation: Arc::new(allocation), offset }
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.allocation.address.as_ptr().wrapping_add(self.offset)
    }
}

/// Least and most bytes of a chunk: small models take no large pages.
const CHUNK: std::ops::RangeInclusive<usize> = (1 << 20)..=(64 << 20);

/// Bytes that are kept as long as each other, in chunks: small ones share large pages. A chunk is freed with the last
/// of its bytes.
#[derive(Default)]
pub struct Chunks {
    chunks: Vec<Chunk>,
    /// Of all bytes asked for.
    total: usize,
}

struct Chunk {
    allocation: Arc<Allocation>,
    /// Where free bytes begin and end.
    free: (usize, usize),
}

impl Chunk {
    fn new(bytes: usize) -> Chunk {
        let bytes = if bytes < LARGE { bytes } else { bytes.next_multiple_of(LARGE_PAGE) };
        let align = if bytes < LARGE { LINE } else { LARGE_PAGE };
        let allocation = Allocation::new(bytes, align);
        let begin = allocation.address.as_ptr().align_offset(align);
        Chunk { allocation: Arc::new(allocation), free: (begin, begin + bytes) }
    }
}

impl Chunks {
    /// Zeroed bytes, in the first chunk with room.
    pub fn take(&mut self, bytes: usize) -> Bytes {
        let bytes = bytes.next_multiple_of(LINE);
        self.total += bytes;
        let has_room = |chunk: &Chunk| chunk.free.1 - chunk.free.0 >= bytes;
        let at = self.chunks.iter().position(has_room).unwrap_or_else(|| {
            // As much again as there is.
            let size = bytes.max(self.total.clamp(*CHUNK.start(), *CHUNK.end()));
            if size >= LARGE {
                let_go();
            }
            self.chunks.push(Chunk::new(size));
            self.chunks.len() - 1
        });
        let chunk = &mut self.chunks[at];
        let offset = chunk.free.0;
        chunk.free.0 += bytes;
        Bytes { allocation: Arc::clone(&chunk.allocation), offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_chunks_are_zeroed_aligned_and_apart() {
        let mut chunks = Chunks::default();
        let sizes = [1, 100, 700_000, 5 << 20, 3 << 20, 64, 70 << 20, 0, 4096];
        let pieces: Vec<(Bytes, usize)> = sizes.iter().map(|&size| (chunks.take(size), size)).collect();
        drop(chunks);
        for (piece, size) in &pieces {
            assert!(piece.as_ptr().addr().is_multiple_of(LINE));
            // SAFETY: the piece's bytes, which are ours alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(piece.as_ptr(), *size) };
            assert!(bytes.iter().all(|&byte| byte == 0));
            bytes.fill(1);
        }
    }

    #[test]
    fn small_pieces_fill_the_gaps_that_large_ones_leave() {
        let mut chunks = Chunks::default();
        for _ in 0..40 {
            chunks.take(9 << 20);
            chunks.take(2 << 20);
        }
        let room: usize = chunks.chunks.iter().map(|chunk| chunk.free.1 - chunk.free.0).sum();
        assert!(room <= 2 * CHUNK.end(), "{room} bytes are free");
    }
}
