//! The table that `pando system show` prints, for one system with every section. The values were
//! worked out by hand from the files.

use pando_machine::{describe, load};

#[test]
fn a_system_with_every_section() {
    let expected = "\
pod128: IPU-POD128, 2 x POD64

Chip gc200
  tiles                 1472, 6 workers each
  clock                 1.325 GHz
  SRAM                  897 MiB (624 KiB per tile)
  SRAM regions          208 KiB for code or data, 416 KiB interleaved, 16 KiB elements
  SRAM bandwidth        46.81 TB/s (8 or 16 B load + 8 B store per cycle and tile)
  vector                8 B
  matrix peak           249.7 TFLOP/s f16 to f16 (64 MAC per cycle and tile)
  matrix peak           249.7 TFLOP/s f16 to f32 (64 MAC per cycle and tile)
  matrix peak           62.41 TFLOP/s f32 to f32 (16 MAC per cycle and tile)
  exchange              7.802 TB/s (4 B per cycle and tile, buses of 2 tiles, multicast)
  exchange setup        101 cycles
  exchange code         8 B per message and tile
  host packets          up to 256 B, 16 B of header and code
  sync in chip          64 cycles
  sync with host        363 ns
  sync among chips      15 ns per hop
  power                 no source

System
  chips                 128 in 32 machines
  tiles                 188416
  SRAM                  112.1 GiB
  matrix peak           31.96 PFLOP/s f16
  matrix peak           7.989 PFLOP/s f32
  sync of all chips     10.51 µs

Links
  domain                64 chips, torus
  link                  16 GB/s per direction, 85 % usable, 10 links per chip
  rung                  81.6 GB/s per direction (6 links)
  rail                  27.2 GB/s per direction (2 links)
  hop latency           600 ns

Gateway
  domains               2, ring
  bandwidth             25 GB/s per direction and machine
  latency               5 µs

DDR
  capacity              256 GB per 4 chips
  bandwidth             38.4 GB/s peak, 52 % usable
  chip to DDR           15.75 GB/s peak per direction

Host
  attachment            one per 4 chips
  to chip               7.06 GB/s
  from chip             5.03 GB/s
  latency, host ready   1.33 µs
  latency, host waited  124 µs

Cost
  price                 1038400 US$
  power                 38.4 kW
";
    assert_eq!(describe(&load("pod128").unwrap()), expected);
}

#[test]
fn a_single_chip_has_no_links_and_no_cost() {
    let table = describe(&load("tiny4").unwrap());
    assert!(!table.contains("Links") && !table.contains("Gateway") && !table.contains("DDR"));
    assert!(table.contains("\n  chips                 1 in 1 machine\n"), "{table}");
    assert!(table.ends_with("\n  price                 no source\n  power                 no source\n"));
}
