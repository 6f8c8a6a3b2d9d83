//! Allreduce by an operation that does not commute, where ranks do not go cluster by cluster: leaders
//! exchange all operands and combine them in rank order, clusters broadcast. One delay.

use super::scan_ranked::gather_at_leaders;
use crate::builder::Builder;
use crate::collective::{Blocks, Elements};
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape, elements: Elements, in_place: bool) -> Schedule {
    let mut b = Builder::default();
    let slots = Blocks::equal(shape.size(), elements.len());
    let (all, mut ready) = gather_at_leaders(&mut b, shape, elements, in_place);
    let result = elements.result();
    if let Some(all) = all {
        let operands = shape.ranks().map(|rank| (slots.span(all.buffer, rank), ready.clone()));
        ready = b.combine(&operands.collect::<Vec<_>>(), result);
    }
    b.local(LocalCollective::Bcast { data: result, root: 0 }, &ready);
    b.finish()
}
