//! Who sends to whom.

use crate::message::MAX_STREAMS;

/// Connections from one node to another, by their positions on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) here: usize,
    pub(crate) there: usize,
    pub(crate) connections: u32,
}

/// Every node of either side takes part, so that neither a node's own interface nor one receiver's counts for all; about
/// `connections` in all.
pub(crate) fn flows(here: usize, there: usize, connections: u32) -> Vec<Flow> {
    let count = if here == 0 || there == 0 { 0 } else { here.max(there) };
    let most = MAX_STREAMS
        / u32::try_from(count.div_ceil(here.min(there).max(1))).unwrap_or(1).clamp(1, MAX_STREAMS);
    let each = connections.div_ceil(u32::try_from(count.max(1)).unwrap_or(u32::MAX)).clamp(1, most);
    let flow = |number| Flow { here: number % here, there: number % there, connections: each };
    (0..count).map(flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn everybody_takes_part_within_bounds() {
        for here in 1..40 {
            for there in [1, 2, 7, 39] {
                for connections in [1, 16, 300, u32::MAX] {
                    let flows = flows(here, there, connections);
                    let unique = |side: fn(&Flow) -> usize| {
                        flows.iter().map(side).collect::<BTreeSet<_>>().len()
                    };
                    assert_eq!((unique(|f| f.here), unique(|f| f.there)), (here, there));
                    for node in 0..here {
                        let of = flows.iter().filter(|flow| flow.here == node);
                        assert!(of.map(|flow| flow.connections).sum::<u32>() <= MAX_STREAMS);
                    }
                }
            }
        }
        assert_eq!(flows(0, 3, 8), []);
        assert_eq!(flows(8, 8, 16)[3], Flow { here: 3, there: 3, connections: 2 });
    }
}
