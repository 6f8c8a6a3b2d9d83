//! Barrier: a cluster enters, leaders tell each other, clusters leave. One delay.

use crate::builder::{Builder, Done};
use crate::schedule::{LocalCollective, Schedule};
use crate::shape::Shape;

pub(crate) fn build(shape: &Shape) -> Schedule {
    let mut b = Builder::default();
    let entered = b.local(LocalCollective::Barrier, &Done::now());
    let mut all_entered = entered.clone();
    if shape.me() == shape.leader(shape.my_cluster()) {
        for cluster in shape.other_clusters() {
            b.signal(shape.leader(cluster), &entered);
            all_entered.add(&b.await_signal(shape.leader(cluster)));
        }
    }
    b.local(LocalCollective::Barrier, &all_entered);
    b.finish()
}
