//! A whole system: chips, the links between them, gateways, streaming memory, hosts, cost. Plain
//! data as it stands in a system file, plus what follows from it by arithmetic alone.
//!
//! "Machine" in field names (`bytes_per_machine`) is one chassis or card, as the vendor's "IPU-Machine".
//!
//! In: nothing. Out: the structs. Deliberately not here: which chips a program uses, routes, and
//! algorithms of collectives.

use serde::{Deserialize, Serialize};

use crate::chip::Chip;

/// A named system: one chip, a card, a chassis, or a POD. All chips are alike.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    pub name: String,
    /// The system in a few words, for people.
    pub title: String,
    pub chip: Chip,
    /// Chips in the whole system.
    pub chips: u32,
    /// Links between chips; `None` only for a single chip.
    pub links: Option<Links>,
    /// Links between domains; `None` if all chips are in one domain.
    pub gateway: Option<Gateway>,
    /// Streaming memory beside the chips, if any.
    pub ddr: Option<Ddr>,
    pub host: Host,
    /// List price of the whole system in US dollars, if a source gives it.
    pub price_usd: Option<f64>,
    /// Watts of the whole system under load, if a source gives it.
    pub power_w: Option<f64>,
}

/// How the chips of a domain are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Two chips.
    Pair,
    /// Pairs (rungs) one above the other; chip i is on rung i / 2, its rail is i % 2.
    Ladder,
    /// A ladder whose top rung is joined to its bottom rung.
    Torus,
    /// Every chip with every other.
    Full,
}

/// How domains are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GatewayTopology {
    /// Each machine with its counterpart in the next domain; the last domain with the first.
    Ring,
    /// Each machine with any counterpart, through switches.
    Switch,
}

/// Links between the chips of one domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// Chips that links join; the rest is behind gateways.
    pub domain_chips: u32,
    pub topology: Topology,
    /// Links that leave one chip.
    pub links_per_chip: u32,
    /// Parallel links between the two chips of a rung or pair.
    pub rung_links: u32,
    /// Parallel links between neighbours on a rail; in `full`, between any two chips.
    pub rail_links: u32,
    /// Bytes per second of one link, per direction.
    pub link_bytes_per_s: f64,
    /// Share of `link_bytes_per_s` that data can use, above 0 and at most 1.
    pub efficiency: f64,
    /// Seconds until the first byte has crossed one link.
    pub hop_latency_s: f64,
}

/// Links between domains, from the gateway of each machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    /// Number of domains; `domains` x `domain_chips` is all chips.
    pub domains: u32,
    pub topology: GatewayTopology,
    /// Bytes per second, per direction and machine.
    pub bytes_per_s: f64,
    /// Seconds until the first byte has reached another domain.
    pub latency_s: f64,
}

/// Streaming memory, shared by the chips of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ddr {
    pub bytes_per_machine: u64,
    pub chips_per_machine: u32,
    /// Peak bytes per second of one machine's memory, reads and writes together.
    pub bytes_per_s: f64,
    /// Share of the peak that data can use, above 0 and at most 1.
    pub efficiency: f64,
    /// Peak bytes per second between one chip and the memory, per direction.
    pub chip_bytes_per_s: f64,
}

/// The way to the host. An attachment is one machine's network port or one card's slot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Bytes per second from the host, per attachment.
    pub bytes_to_chip_per_s: f64,
    /// Bytes per second to the host, per attachment.
    pub bytes_from_chip_per_s: f64,
    /// Chips that share one attachment.
    pub chips_per_attachment: u32,
    /// Seconds a host transfer takes besides its bytes when the host has to be waited for.
    pub callback_latency_s: f64,
    /// The same when the host has its data ready.
    pub ready_latency_s: f64,
}

impl Links {
    /// Usable bytes per second and direction between the two chips of a rung.
    pub fn rung_bytes_per_s(&self) -> f64 {
        f64::from(self.rung_links) * self.link_bytes_per_s * self.efficiency
    }

    /// Usable bytes per second and direction between neighbours on a rail.
    pub fn rail_bytes_per_s(&self) -> f64 {
        f64::from(self.rail_links) * self.link_bytes_per_s * self.efficiency
    }
}

impl Machine {
    /// Tiles in the whole system.
    pub fn tiles_total(&self) -> u64 {
        u64::from(self.chips).saturating_mul(self.chip.tiles.into())
    }

    /// Chassis or cards in the system: as the streaming memory is shared, else as the host is.
    pub fn machines(&self) -> u32 {
        let per_machine = match &self.ddr {
            Some(ddr) => ddr.chips_per_machine,
            None => self.host.chips_per_attachment,
        };
        self.chips.div_ceil(per_machine.max(1))
    }

    /// Attachments to hosts in the system.
    pub fn host_attachments(&self) -> u32 {
        self.chips.div_ceil(self.host.chips_per_attachment.max(1))
    }

    /// Domains in the system, 1 without gateways.
    pub fn domains(&self) -> u32 {
        self.gateway.as_ref().map_or(1, |gateway| gateway.domains)
    }

    /// Chips that reach each other by links.
    pub fn domain_chips(&self) -> u32 {
        self.links.as_ref().map_or(self.chips, |links| links.domain_chips)
    }

    /// Peak of all chips together; see [`Chip::peak_flops`].
    pub fn peak_flops(&self, input: &str) -> f64 {
        f64::from(self.chips) * self.chip.peak_flops(input)
    }

    /// Bytes of on-chip memory in the system.
    pub fn sram_bytes(&self) -> u64 {
        u64::from(self.chips).saturating_mul(self.chip.sram_bytes())
    }

    /// Bytes of streaming memory in the system.
    pub fn ddr_bytes(&self) -> u64 {
        let per_machine = self.ddr.as_ref().map_or(0, |ddr| ddr.bytes_per_machine);
        per_machine.saturating_mul(self.machines().into())
    }

    /// Seconds of a barrier among the first `chips` chips, besides each chip's own barrier: out and
    /// back over 1 + (n / 2) / 2 hops for the n chips of a domain (PopLibs IPUModel, its integer
    /// divisions kept), and once out and back through the gateways if there is more than one domain.
    pub fn chips_sync_s(&self, chips: u32) -> f64 {
        let in_domain = chips.min(self.domain_chips());
        if in_domain <= 1 {
            return 0.0;
        }
        let hops = 1 + in_domain / 2 / 2;
        let inside = 2.0 * f64::from(hops) * self.chip.sync.hop_s;
        match &self.gateway {
            Some(gateway) if chips > in_domain => inside + 2.0 * gateway.latency_s,
            _ => inside,
        }
    }
}
