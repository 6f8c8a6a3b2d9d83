//! What holds the senders back.

use crate::place::{Site, Stated};

/// The congestion control of paced connections, and what stands for the system's at all times.
pub(super) const CONGESTION: &str = "GRIDMPI_CONGESTION";
pub(super) const SYSTEM: &str = "system";

/// What holds the senders back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing.
    Off,
    /// Nothing, and nothing of ours is there: the vendor's MPI by itself runs over all nodes as over those of one cluster.
    Vendor,
    /// A token bucket (tbf) as each node's interface, at an equal share of the link.
    Tbf,
    /// Ours, at an equal share of the link.
    Static,
    /// Ours, at half of that.
    Half,
    /// Ours, at so many thousandths of an equal share of the link; and what to call it.
    Swept(u32, &'static str),
    /// Ours, as it finds.
    Auto,
    /// The same as on a kernel that does not let us have BBR.
    WithoutBbr,
    /// The same where the job file does not say what interfaces carry.
    WithoutInterfaces,
}

pub(super) const ALL_MODES: [Mode; 5] =
    [Mode::Off, Mode::Tbf, Mode::Static, Mode::Half, Mode::Auto];
pub(super) const OFF_AND_AUTO: [Mode; 2] = [Mode::Off, Mode::Auto];

/// Static rates from an eighth of an equal share to two of them; that of a receiver's interface by the nodes is among them.
pub(super) const SWEEP: [Mode; 7] = [
    Mode::Swept(125, "static, B/8N"),
    Mode::Swept(250, "static, B/4N"),
    Mode::Swept(312, "static, 0.31 B/N"),
    Mode::Swept(500, "static, B/2N"),
    Mode::Swept(750, "static, 0.75 B/N"),
    Mode::Swept(1000, "static, B/N"),
    Mode::Swept(2000, "static, 2B/N"),
];

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "not paced",
            Self::Vendor => "the vendor alone",
            Self::Tbf => "tbf at B/N",
            Self::Static => "static, B/N",
            Self::Half => "static, B/2N",
            Self::Swept(_, name) => name,
            Self::Auto => "auto",
            Self::WithoutBbr => "auto, without bbr",
            Self::WithoutInterfaces => "auto, interfaces not said",
        }
    }

    /// Whether it is our library that paces.
    pub(super) fn is_ours(self) -> bool {
        !matches!(self, Self::Off | Self::Vendor | Self::Tbf)
    }

    /// The place with this mode's interfaces.
    pub(super) fn site(self, site: &Site) -> Site {
        match self {
            Self::Tbf => Site { interface_mbit: Some(site.link_mbit / site.nodes), ..*site },
            _ => *site,
        }
    }

    /// What the job file says of the network.
    pub(super) fn stated(self) -> Stated {
        Stated { has_interfaces: self != Self::WithoutInterfaces, ..Stated::ALL }
    }

    /// What the library is told.
    pub(super) fn settings(self, site: &Site) -> Vec<(&'static str, String)> {
        let pacing = |how: &str| ("GRIDMPI_PACING", how.to_owned());
        let share = |thousandths| format!("{}k", site.link_mbit * thousandths / site.nodes);
        match self {
            Self::Vendor => Vec::new(),
            Self::Off | Self::Tbf => vec![pacing("off")],
            Self::Static => vec![pacing("static")],
            Self::Half => vec![pacing("static"), ("GRIDMPI_MATB", share(500))],
            Self::Swept(thousandths, _) => {
                vec![pacing("static"), ("GRIDMPI_MATB", share(thousandths))]
            }
            Self::Auto | Self::WithoutInterfaces => vec![pacing("auto")],
            Self::WithoutBbr => vec![pacing("auto"), (CONGESTION, SYSTEM.to_owned())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::sites::SITE;

    #[test]
    fn only_tbf_is_of_the_place() {
        assert_eq!(Mode::Tbf.site(&SITE).interface_mbit, Some(20));
        assert_eq!(Mode::Auto.site(&SITE), SITE);
        assert!(Mode::Half.settings(&SITE).contains(&("GRIDMPI_MATB", "10000k".to_owned())));
        assert_eq!(ALL_MODES.iter().filter(|mode| mode.is_ours()).count(), 3);
        assert!(!Mode::Vendor.is_ours() && Mode::Vendor.settings(&SITE).is_empty());
    }
}
