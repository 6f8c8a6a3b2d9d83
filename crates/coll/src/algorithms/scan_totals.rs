//! Scan and Exscan where ranks go cluster by cluster: clusters scan their own operands, each sends its
//! total to the leaders of all later clusters, these combine what comes before theirs. One delay.

use super::scan_ranked::Own;
use crate::builder::{Builder, Done};
use crate::collective::Elements;
use crate::schedule::{LocalCollective, Schedule, Span};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, elements: Elements, own: Own, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let (operand, result) = (elements.operand(in_place), elements.result());
    let is_leader = shape.my_local_rank() == 0;

    let total = is_leader.then(|| b.elements(elements.len(), elements.size));
    let reduce = LocalCollective::Reduce { from: Some(operand), into: total, root: 0 };
    let reduced = b.local(reduce, &Done::now());
    if let Some(total) = total {
        for cluster in shape.my_cluster() + 1..shape.clusters() {
            b.send(shape.leader(cluster), total, &reduced);
        }
    }
    let from = (!in_place).then_some(operand);
    let scan = match own {
        Own::Included => LocalCollective::Scan { from, into: result },
        Own::Excluded => LocalCollective::Exscan { from, into: result },
    };
    let scanned = b.local(scan, &reduced);
    if shape.my_cluster() > 0 {
        let (before, arrived) = bring_prefix(&mut b, shape, elements, is_leader);
        let ready = scanned.and(&arrived);
        if own == Own::Excluded && is_leader {
            b.copy(before, result, &ready);
        } else {
            b.reduce(before, result, &ready);
        }
    }
    b.finish()
}

/// Combines the totals of the clusters before this one and gives the result to all its members.
fn bring_prefix(
    b: &mut Builder,
    shape: &Shape,
    elements: Elements,
    is_leader: bool,
) -> (Span, Done) {
    let before = b.elements(elements.len(), elements.size);
    let mut arrived = Done::now();
    if is_leader {
        let last = shape.my_cluster() - 1;
        let totals: Vec<_> = (0..=last)
            .map(|cluster| {
                let is_last = cluster == last;
                let slot = if is_last { before } else { b.elements(elements.len(), elements.size) };
                (slot, b.receive(shape.leader(cluster), slot, &Done::now()))
            })
            .collect();
        arrived = b.combine(&totals, before);
    }
    let bcast = LocalCollective::Bcast { data: before, root: 0 };
    (before, b.local(bcast, &arrived))
}
