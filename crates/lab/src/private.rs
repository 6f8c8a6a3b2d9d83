//! Clusters whose nodes have no wide-area interface: what a lab file may say of them.
//!
//! ```toml
//! [[cluster]]
//! name = "a"
//! nodes = 4
//! private = true
//! gateways = 2                       # a-gw1, a-gw2: an interface on either side; default: 1
//! gateway_interface = "20 Mbit/s"    # of each gateway towards the wide area; default: no limit
//! interface_buffer = "64 KiB"        # of the switch in front of each gateway, as for nodes elsewhere
//! network = "10.9.0.0/16"            # inside; other clusters may have the same; default: 10.c.0.0/16
//! nat = true                         # nodes dial out through gateway 1; default: false
//! nat_timeout = "30 s"               # idle entries of NAT and firewall; default: 300 s
//! firewall = "outbound"              # nothing dials in; or "open": gateways' ports can be dialled
//! ```

use crate::spec::{RawCluster, Source, SpecError};
use gridmpi_report::units;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;
use toml::Spanned;

/// Highest number of gateways of one cluster.
pub const MAX_GATEWAYS: u8 = 50;
/// Nodes have the first 250 addresses, the head the 254th, gateways those behind 256.
const LONGEST_PREFIX: u8 = 23;
const SHORTEST_PREFIX: u8 = 8;
/// What nobody has asked for.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// How a cluster's nodes are hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Private {
    /// Number of gateways, 1 to [`MAX_GATEWAYS`].
    pub gateways: u8,
    /// The addresses inside.
    pub network: Network,
    /// Whether nodes can dial out through the first gateway, under its address.
    pub nat: bool,
    /// How long entries of NAT and firewall live without a packet: whole seconds, at least one.
    pub timeout: Duration,
    /// What gateways let in.
    pub firewall: Firewall,
}

/// What of the wide area reaches a gateway's own ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Firewall {
    /// Only answers: nobody can dial in.
    Outbound,
    /// Everything.
    Open,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its first address.
    pub base: Ipv4Addr,
    /// Bits that all its addresses share, 8 to 23.
    pub prefix: u8,
}

impl Network {
    /// The address so far behind the first.
    #[must_use]
    pub fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits().wrapping_add(number))
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
        address.to_bits() & mask == self.base.to_bits() & mask
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }

    fn read(text: &str) -> Result<Self, String> {
        let form = || format!("`{text}` is no network: write it as \"10.9.0.0/16\"");
        let (base, prefix) = text.split_once('/').ok_or_else(form)?;
        let base: Ipv4Addr = base.parse().map_err(|_| form())?;
        let prefix: u8 = prefix.parse().map_err(|_| form())?;
        if !(SHORTEST_PREFIX..=LONGEST_PREFIX).contains(&prefix) {
            return Err(format!(
                "a network's prefix has {SHORTEST_PREFIX} to {LONGEST_PREFIX} bits: gateways need room behind the nodes"
            ));
        }
        let network = Self { base, prefix };
        if network.address(0).to_bits().trailing_zeros() < 32 - u32::from(prefix) {
            return Err(format!(
                "`{text}` begins within a network: its last {} bits must be 0",
                32 - prefix
            ));
        }
        let private = [(10, 0, 8), (172, 16, 12), (192, 168, 16)]
            .map(|(a, b, prefix)| Self { base: Ipv4Addr::new(a, b, 0, 0), prefix });
        if !private.iter().any(|range| range.contains(base) && range.prefix <= prefix) {
            return Err(format!(
                "`{text}` is not private: take one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16"
            ));
        }
        if network.overlaps(&WIDE_AREA) {
            return Err(format!("`{text}` overlaps the wide area, {WIDE_AREA}: take another"));
        }
        Ok(network)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.base, self.prefix)
    }
}

/// The wide area's addresses.
pub const WIDE_AREA: Network = Network { base: Ipv4Addr::new(10, 100, 0, 0), prefix: 16 };

/// The inside of a cluster that says nothing of it.
#[must_use]
pub fn default_network(cluster: usize) -> Network {
    Network { base: Ipv4Addr::new(10, cluster as u8 + 1, 0, 0), prefix: 16 }
}

/// Reads what a cluster, `before` which there are others, says of being private.
pub(crate) fn read(
    source: &Source<'_>,
    raw: &RawCluster,
    before: usize,
) -> Result<Option<Private>, SpecError> {
    if !raw.private.as_ref().is_some_and(|private| *private.get_ref()) {
        return read_none(source, raw).map(|()| None);
    }
    if let Some(place) = &raw.interface {
        let message =
            "nodes of a private cluster have no wide-area interface: write `gateway_interface`";
        return Err(source.at(place, message));
    }
    let gateways = raw.gateways.as_ref().map_or(1, |gateways| *gateways.get_ref());
    let gateways = u8::try_from(gateways).unwrap_or(0);
    if let (false, Some(place)) = ((1..=MAX_GATEWAYS).contains(&gateways), &raw.gateways) {
        return Err(source.at(place, format!("a private cluster has 1 to {MAX_GATEWAYS} gateways")));
    }
    let network = match &raw.network {
        Some(text) => Network::read(text.get_ref()).map_err(|why| source.at(text, why))?,
        None => default_network(before),
    };
    let nat = raw.nat.as_ref().is_some_and(|nat| *nat.get_ref());
    let firewall = read_firewall(source, raw.firewall.as_ref())?;
    let timeout = read_timeout(source, raw)?;
    if let (false, Firewall::Open, Some(place)) = (nat, firewall, &raw.nat_timeout) {
        let message =
            "nothing here times out: `nat_timeout` needs `nat = true` or `firewall = \"outbound\"`";
        return Err(source.at(place, message));
    }
    Ok(Some(Private { gateways, network, nat, timeout, firewall }))
}

/// Nothing of this has a meaning for other clusters.
fn read_none(source: &Source<'_>, raw: &RawCluster) -> Result<(), SpecError> {
    let start = |span: std::ops::Range<usize>| span.start;
    let keys = [
        ("gateways", raw.gateways.as_ref().map(|at| start(at.span()))),
        ("gateway_interface", raw.gateway_interface.as_ref().map(|at| start(at.span()))),
        ("network", raw.network.as_ref().map(|at| start(at.span()))),
        ("nat", raw.nat.as_ref().map(|at| start(at.span()))),
        ("nat_timeout", raw.nat_timeout.as_ref().map(|at| start(at.span()))),
        ("firewall", raw.firewall.as_ref().map(|at| start(at.span()))),
    ];
    match keys.into_iter().find_map(|(key, place)| Some((key, place?))) {
        Some((key, place)) => {
            let message =
                format!("`{key}` is for clusters behind gateways: write `private = true`, too");
            Err(source.error(place, message))
        }
        None => Ok(()),
    }
}

fn read_firewall(
    source: &Source<'_>,
    raw: Option<&Spanned<String>>,
) -> Result<Firewall, SpecError> {
    let Some(word) = raw else { return Ok(Firewall::Outbound) };
    match word.get_ref().as_str() {
        "outbound" => Ok(Firewall::Outbound),
        "open" => Ok(Firewall::Open),
        other => Err(source.at(
            word,
            format!("`{other}` is no firewall: \"outbound\" (nothing dials in) or \"open\" (gateways' ports can be dialled)"),
        )),
    }
}

fn read_timeout(source: &Source<'_>, raw: &RawCluster) -> Result<Duration, SpecError> {
    let Some(place) = &raw.nat_timeout else { return Ok(DEFAULT_TIMEOUT) };
    let timeout = source.quantity(Some(place), units::parse_duration)?.unwrap_or(DEFAULT_TIMEOUT);
    let is_whole = timeout.subsec_nanos() == 0 && !timeout.is_zero();
    if is_whole {
        return Ok(timeout);
    }
    Err(source.at(place, "the kernel counts in seconds: `nat_timeout` is 1 s, 2 s, ..."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_room_for_gateways() {
        let network = Network::read("192.168.4.0/22").unwrap();
        assert_eq!(network.address(257).to_string(), "192.168.5.1");
        assert_eq!(network.to_string(), "192.168.4.0/22");
        assert!(network.contains(Ipv4Addr::new(192, 168, 7, 255)));
        assert!(!network.contains(Ipv4Addr::new(192, 168, 8, 0)));
        for (wrong, why) in [
            ("10.9.0.0", "is no network"),
            ("10.9.0/16", "is no network"),
            ("10.9.0.0/99", "8 to 23 bits"),
            ("10.9.0.0/24", "8 to 23 bits"),
            ("10.9.1.0/16", "begins within"),
            ("11.0.0.0/16", "not private"),
            ("10.100.64.0/18", "overlaps the wide area"),
            ("10.0.0.0/8", "overlaps the wide area"),
        ] {
            let error = Network::read(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
