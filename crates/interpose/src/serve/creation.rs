//! How communicators across clusters come to be (MPI 4.1 §7.4.2): the members agree on a context, and
//! in each cluster the vendor makes the token of the members there.
//!
//! The agreement comes before the vendor's call. It ends only when all members are in the procedure, and
//! it looks after our held receives meanwhile; so the vendor's call, which does not, blocks on nobody who
//! may still wait for one of those.

use super::completion::wait_vendor;
use crate::collective::allgather_bytes;
use crate::communicator::Spanning;
use crate::error::{Error, Result, check};
use crate::runtime::Runtime;
use gridmpi_abi::{Abi, ErrorClass};
use gridmpi_engine::split::NewCommunicator;
use gridmpi_engine::{Cart, Communicator, Graph, Group, Topology};
use gridmpi_wire::{ContextId, Rank};
use std::ffi::c_int;
use std::sync::Arc;

/// Counts of contexts that a process can name, see [`ContextId::reserved`].
const CONTEXTS: u32 = 1 << 31;

/// What every member told, by rank: `N` words each.
pub(super) struct Told<const N: usize>(Vec<[u32; N]>);

impl<const N: usize> Told<N> {
    /// Everybody tells its words and learns all others'. Collective over `comm`.
    ///
    /// # Errors
    /// Another cluster is lost.
    pub(super) fn gather<A: Abi>(
        rt: &Runtime<A>,
        comm: &Spanning<A>,
        own: [u32; N],
    ) -> Result<Self> {
        let bytes = allgather_bytes(rt, comm, &encode(&own))?;
        let told = Self(decode(&bytes).collect());
        if told.0.len() == comm.view.group().procs().len() {
            Ok(told)
        } else {
            Err(internal("members of a communicator disagree on what they tell each other"))
        }
    }

    /// What each member told, by rank.
    pub(super) fn all(&self) -> &[[u32; N]] {
        &self.0
    }
}

/// Words as members tell them to each other, whatever their machines: little-endian.
pub(super) fn encode(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What [`encode`] made, `N` words at a time; what is left at the end is dropped.
pub(super) fn decode<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u32; N]> {
    let (words, _) = bytes.as_chunks::<4>();
    words.as_chunks::<N>().0.iter().map(|words| words.map(u32::from_le_bytes))
}

/// The contexts that the members of a communicator have reserved for a new one, by rank; that of its
/// rank 0 is taken.
pub(super) struct Contexts(Vec<ContextId>);

impl Contexts {
    /// Everybody reserves one. Collective over `comm`.
    ///
    /// # Errors
    /// Another cluster is lost.
    pub(super) fn agree<A: Abi>(rt: &Runtime<A>, comm: &Spanning<A>) -> Result<Self> {
        let told = Told::gather(rt, comm, [rt.job().reserve_context()])?;
        Self::of_counts(comm.view.group(), told.all().iter().map(|&[count]| count))
    }

    /// The contexts of these counts, told by the members of `group` in order.
    pub(super) fn of_counts(group: &Group, counts: impl Iterator<Item = u32>) -> Result<Self> {
        let context = |(&proc, count)| Ok(ContextId::reserved(proc, checked_count(count)?));
        group.procs().iter().zip(counts).map(context).collect::<Result<_>>().map(Self)
    }

    /// The context for a communicator whose rank 0 has `rank` in the old one.
    pub(super) fn of(&self, rank: Rank) -> ContextId {
        self.0[rank.0 as usize]
    }
}

/// A count that another process has told.
pub(super) fn checked_count(count: u32) -> Result<u32> {
    if count < CONTEXTS { Ok(count) } else { Err(internal("a process reserved no context")) }
}

/// The new communicator that this process becomes a member of.
pub(super) struct Part {
    /// Its members and its context.
    pub(super) new: NewCommunicator,
    /// The same for all members of it, another one for those of other parts.
    pub(super) color: c_int,
}

impl Part {
    /// The part whose members have `ranks` in the old communicator, in this order; not empty. All parts
    /// are disjoint.
    pub(super) fn of_ranks(old: &Group, ranks: &[Rank], contexts: &Contexts) -> Self {
        let group = Group::new(ranks.iter().map(|rank| old.procs()[rank.0 as usize]));
        let context = contexts.of(ranks[0]);
        Self {
            new: NewCommunicator { group, context },
            color: crate::communicator::int(ranks[0].0),
        }
    }
}

/// Divides the token into the parts' and gives the handle of this process's part, `MPI_COMM_NULL` for
/// `None`. To be called by all members of `old` after they have agreed.
pub(super) fn divide<A: Abi>(
    rt: &Runtime<A>,
    old: &Spanning<A>,
    part: Option<Part>,
    topology: Option<Topology>,
) -> Result<A::Comm> {
    let (color, rank) = match &part {
        Some(part) => (part.color, part.new.group.rank(rt.job().me)),
        None => (A::UNDEFINED, None),
    };
    let key = crate::communicator::int(rank.map_or(0, |rank| rank.0));
    let mut token = A::comm_null();
    // SAFETY: a token of ours and a place of our own.
    check(unsafe { rt.vendor.comm_split(old.token, color, key, &raw mut token) })?;
    match part {
        Some(part) => finish(rt, token, part.new, topology),
        None => Ok(A::comm_null()),
    }
}

/// Makes the new communicator known, if it spans; `token` has its members here in the order of their
/// ranks.
pub(super) fn finish<A: Abi>(
    rt: &Runtime<A>,
    token: A::Comm,
    new: NewCommunicator,
    topology: Option<Topology>,
) -> Result<A::Comm> {
    let job = rt.job();
    let view = Communicator::new(new.context, new.group, job.me, &job.map)
        .ok_or_else(|| internal("a process is not in its own communicator"))?;
    match topology {
        None if !view.is_spanning() => Ok(token),
        None => Ok(rt.adopt(Spanning::new(token, view))),
        Some(topology) if view.is_spanning() => {
            Ok(rt.adopt(Spanning::new(token, view.with_topology(topology))))
        }
        Some(topology) => arrange(rt, token, &topology),
    }
}

/// Gives a communicator of the vendor's alone its topology, so that the vendor answers all questions.
fn arrange<A: Abi>(rt: &Runtime<A>, mut plain: A::Comm, topology: &Topology) -> Result<A::Comm> {
    let arranged = match topology {
        Topology::Cart(cart) => vendor_cart(rt, plain, cart),
        Topology::Graph(graph) => vendor_graph(rt, plain, graph),
        // It has all members of the communicator that it was made from, which spans.
        Topology::DistGraph(_) => Err(internal("a distributed graph in one cluster")),
    };
    // SAFETY: a communicator of ours that the program has never seen.
    check(unsafe { rt.vendor.comm_free(&raw mut plain) })?;
    arranged
}

fn vendor_cart<A: Abi>(rt: &Runtime<A>, plain: A::Comm, cart: &Cart) -> Result<A::Comm> {
    let dims: Vec<c_int> = cart.dims().collect();
    let periods: Vec<c_int> = cart.periods().map(c_int::from).collect();
    let mut made = A::comm_null();
    let count = c_int::try_from(dims.len()).unwrap_or(c_int::MAX);
    let (dims, periods) = (dims.as_ptr(), periods.as_ptr());
    // SAFETY: two arrays of that length and a place of our own.
    check(unsafe { rt.vendor.cart_create(plain, count, dims, periods, 0, &raw mut made) })?;
    Ok(made)
}

fn vendor_graph<A: Abi>(rt: &Runtime<A>, plain: A::Comm, graph: &Graph) -> Result<A::Comm> {
    let mut made = A::comm_null();
    let count = crate::communicator::int(graph.size());
    let (index, edges) = (graph.index().as_ptr(), graph.edges().as_ptr());
    // SAFETY: arrays as the index says and a place of our own.
    check(unsafe { rt.vendor.graph_create(plain, count, index, edges, 0, &raw mut made) })?;
    Ok(made)
}

/// Waits until all members in this cluster are here, for procedures that concern them alone. Our held
/// receives are looked after meanwhile.
pub(super) fn gather_neighbours<A: Abi>(rt: &Runtime<A>, comm: &Spanning<A>) -> Result<()> {
    let mut request = A::request_null();
    // SAFETY: a token of ours and a place of our own.
    check(unsafe { rt.vendor.ibarrier(comm.token, &raw mut request) })?;
    wait_vendor(rt, request).map(drop)
}

/// The spanning communicator that the entry found.
///
/// # Errors
/// `MPI_ERR_COMM` if another thread has freed it since.
pub(super) fn spanning<A: Abi>(rt: &Runtime<A>, comm: A::Comm) -> Result<Arc<Spanning<A>>> {
    rt.tokens
        .spanning(comm)
        .map(|found| found.to_arc())
        .ok_or_else(|| Error::new(ErrorClass::Comm, "the communicator was freed meanwhile"))
}

pub(super) fn internal(what: &str) -> Error {
    Error::new(ErrorClass::Intern, format!("internal error: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_wire::ProcId;

    fn group(procs: &[u32]) -> Group {
        Group::new(procs.iter().copied().map(ProcId))
    }

    #[test]
    fn words_come_back() {
        let pairs = |words: &[u32]| decode::<2>(&encode(words)).collect::<Vec<_>>();
        assert_eq!(pairs(&[1, u32::MAX, 0x0102_0304, 7]), [[1, u32::MAX], [0x0102_0304, 7]]);
        assert_eq!(encode(&[0x0102_0304]), [4, 3, 2, 1]);
        assert_eq!(pairs(&[1, 2, 3]), [[1, 2]]);
    }

    #[test]
    fn a_part_has_the_context_of_its_first_member() {
        let old = group(&[9, 4, 6, 2]);
        let contexts = Contexts::of_counts(&old, [11, 12, 13, 14].into_iter()).unwrap();
        let part = Part::of_ranks(&old, &[Rank(2), Rank(0)], &contexts);
        assert_eq!(part.new.group, group(&[6, 9]));
        assert_eq!(part.new.context, ContextId::reserved(ProcId(6), 13));
        assert_eq!(part.color, 2);
    }

    #[test]
    fn counts_of_others_are_checked() {
        assert!(Contexts::of_counts(&group(&[1]), [u32::MAX].into_iter()).is_err());
        assert_eq!(checked_count(CONTEXTS - 1), Ok(CONTEXTS - 1));
    }
}
