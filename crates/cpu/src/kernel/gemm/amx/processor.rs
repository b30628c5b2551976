//! The processor's unit (AMX): its instructions, and whether this process may use them.
//!
//! Between [`Unit::begin`] and [`Unit::end`] the registers keep their contents from one instruction to the next:
//! the compiler has no use for them, and the system saves them with a thread.

#![allow(unsafe_code)]

use super::unit::{Product, Unit};
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

/// Whether the system has the unit's registers in mind, and gives the process leave to use it; the processor has one.
pub fn is_permitted() -> bool {
    system_saves_registers() && request_permission()
}

/// CPUID leaf 7: AMX-BF16, AMX-TILE and AMX-INT8 are bits 22, 24 and 25 of EDX.
pub fn has_unit() -> bool {
    const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
}

/// XCR0: the configuration of tiles and their data are bits 17 and 18; CPUID leaf 1 says in bit 27 of ECX whether the
/// register may be read.
fn system_saves_registers() -> bool {
    #[target_feature(enable = "xsave")]
    unsafe fn enabled() -> u64 {
        // SAFETY: the caller has seen that the system uses XSAVE.
        unsafe { _xgetbv(0) }
    }
    const BITS: u64 = 1 << 17 | 1 << 18;
    // SAFETY: the first condition is what the register's reader asks for.
    __cpuid(1).ecx & 1 << 27 != 0 && unsafe { enabled() } & BITS == BITS
}

/// Linux gives a process room for the registers when it asks (Documentation/arch/x86/xstate.rst).
#[cfg(target_os = "linux")]
fn request_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn request_permission() -> bool {
    false
}

/// What `ldtilecfg` reads.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Palette 1: eight registers, each at most 16 rows of 64 bytes.
static CONFIG: Config = Config {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// The processor's unit.
pub struct Processor;

// SAFETY of the blocks below: the caller guarantees the instructions and the memory.
impl Unit for Processor {
    #[inline(always)]
    unsafe fn begin() {
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    unsafe fn end() {
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    unsafe fn zero<const T: usize>() {
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags)) };
    }

    #[inline(always)]
    unsafe fn load<const T: usize>(from: *const u8, stride: usize) {
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}*1]", t = const T, from = in(reg) from,
                stride = in(reg) stride, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn store<const T: usize>(to: *mut u8, stride: usize) {
        unsafe {
            asm!("tilestored [{to} + {stride}*1], tmm{t}", t = const T, to = in(reg) to,
                stride = in(reg) stride, options(nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn multiply<const C: usize, const A: usize, const B: usize>(product: Product) {
        unsafe {
            match product {
                Product::Bf16 => {
                    asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                        options(nostack, preserves_flags));
                }
                Product::Bytes => {
                    asm!("tdpbusd tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                        options(nostack, preserves_flags));
                }
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    //! Goal: the assembler makes the instructions that Intel documents (Software Developer's Manual, volume 2).

    std::arch::global_asm!(
        ".pushsection .text",
        ".globl pando_tile_instructions",
        "pando_tile_instructions:",
        "tdpbf16ps tmm3, tmm5, tmm6",
        "tdpbusd tmm3, tmm5, tmm6",
        "tilezero tmm3",
        "tilerelease",
        "ldtilecfg [rax]",
        "tileloadd tmm3, [rax + rcx*1]",
        "tilestored [rax + rcx*1], tmm3",
        ".popsection",
    );

    unsafe extern "C" {
        static pando_tile_instructions: [u8; 37];
    }

    /// VEX prefixes of three bytes: map 0F38, W0, 128 bits; the last has vvvv, inverted, and the mandatory prefix
    /// (none, 66, F3, F2 as 0 to 3). Then the opcode, and ModRM: register, and register or memory.
    fn vex(vvvv: u8, prefix: u8, opcode: u8, modrm: &[u8]) -> Vec<u8> {
        [&[0xc4, 0xe2, !vvvv << 3 & 0x78 | prefix, opcode], modrm].concat()
    }

    #[test]
    fn instructions_have_their_documented_codes() {
        let registers = |reg: u8, rm: u8| 0xc0 | reg << 3 | rm;
        let expected = [
            vex(6, 2, 0x5c, &[registers(3, 5)]),
            vex(6, 1, 0x5e, &[registers(3, 5)]),
            vex(0, 3, 0x49, &[registers(3, 0)]),
            vex(0, 0, 0x49, &[registers(0, 0)]),
            vex(0, 0, 0x49, &[0]),
            // Memory by a base (rax) and an index (rcx): 4 as the last operand, then the byte that names them.
            vex(0, 3, 0x4b, &[3 << 3 | 4, 1 << 3]),
            vex(0, 2, 0x4b, &[3 << 3 | 4, 1 << 3]),
        ];
        // SAFETY: the assembler has put so many bytes there.
        let codes = unsafe { pando_tile_instructions };
        assert_eq!(codes.as_slice(), expected.concat());
    }
}
