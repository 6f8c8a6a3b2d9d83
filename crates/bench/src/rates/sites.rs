//! The places of the experiments.

use crate::place::Site;

/// The place of most measurements.
pub(super) const SITE: Site = Site {
    nodes: 8,
    interface_mbit: Some(50),
    link_mbit: 160,
    delay_ms: 10,
    buffer_kib: 64,
    inlet_kib: None,
    records_frames: false,
};

/// There the interfaces limit what comes in, too.
pub(super) const INLETS: Site = Site { inlet_kib: Some(64), ..SITE };
pub(super) const SLOW_INLETS: Site = Site { interface_mbit: Some(15), ..INLETS };

/// Twice as fast, with as much buffer and with four times that.
pub(super) const FASTER: Site = Site { interface_mbit: Some(100), link_mbit: 320, ..SITE };
pub(super) const DEEPER: Site = Site { buffer_kib: 256, ..FASTER };
/// Half of that, each node as fast.
pub(super) const FEW: Site = Site { nodes: 4, link_mbit: 160, buffer_kib: 32, ..FASTER };
