//! The program's own hand on the rate of its node: the attributes of `include/gridmpi.h`, as the paper that this follows has them (Takano
//! et al., packet pacing for MPI programs in a Grid environment).

use crate::error::tell;
use crate::pacing;
use gridmpi_bootstrap::JobTable;
use gridmpi_bootstrap::env::LEAST_RATE;
use gridmpi_net::Net;
use gridmpi_rate::Rate;
use gridmpi_wire::{ContextId, ProcId};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The keys, as in `include/gridmpi.h`: no vendor gives out such ones.
pub const YAMPI_PSP_MAXRATE: c_int = 0x5053_5001;
pub const YAMPI_PSP_MATB: c_int = 0x5053_5002;

/// Whether it is one of them.
#[inline]
pub(crate) fn is_key(keyval: c_int) -> bool {
    matches!(keyval, YAMPI_PSP_MAXRATE | YAMPI_PSP_MATB)
}

/// Bits per second in a KB/s.
const KB: f64 = 8_000.0;

/// What this process's node may send.
#[derive(Debug)]
pub(crate) struct Matb {
    /// The bandwidth that the cluster's nodes share, bits per second; `None`: it is not known.
    shared: Option<u64>,
    /// `YAMPI_PSP_MAXRATE`: the same in KB/s.
    max_rate: Option<Box<c_int>>,
    /// `YAMPI_PSP_MATB`, KB/s, as the program was last shown it.
    shown: Box<AtomicI32>,
    /// Of the node's interface, bits per second.
    interface: Option<u64>,
    /// Nodes of this cluster.
    nodes: usize,
    /// Processes on this node.
    mates: usize,
    /// The hint that the node keeps to; `None`: the job or something else of the program's has named its rate.
    followed: Mutex<Option<Followed>>,
}

/// A hint that was not ignored, as `MPI_Comm_get_info` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// Of the communicator that it was given on; none of a job has it again.
    pub(crate) on: ContextId,
    pub(crate) key: &'static CStr,
    /// The program's own, or bits per second where it asked for more than there is.
    pub(crate) value: String,
}

/// What an info object asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// `gridmpi_matb`: bits per second for the node.
    Rate(u64),
    /// `gridmpi_pattern`: what the nodes share, divided by how many of them send at once.
    Senders(Senders),
}

/// How many nodes of a cluster send at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Senders {
    All,
    Half,
    Count(u64),
}

impl Senders {
    /// No more than there are.
    fn of(self, nodes: usize) -> u64 {
        let nodes = nodes.max(1) as u64;
        match self {
            Self::All => nodes,
            Self::Half => nodes.div_ceil(2),
            Self::Count(count) => count.min(nodes),
        }
    }
}

/// In what the program asks for a rate. It is answered in the same, to the last digit: rounded, what was asked for and what there is may
/// look alike.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// The attributes.
    Kilobytes,
    /// All else.
    Bits,
}

impl Unit {
    fn write(self, rate: Rate) -> String {
        match self {
            Self::Kilobytes => format!("{} KB/s", rate.bits_per_second() / KB),
            Self::Bits => format!("{} bit/s", rate.bits_per_second()),
        }
    }
}

impl Hint {
    pub(crate) const MATB: &CStr = c"gridmpi_matb";
    pub(crate) const PATTERN: &CStr = c"gridmpi_pattern";

    /// What it is called.
    const fn key(self) -> &'static CStr {
        match self {
            Self::Rate(_) => Self::MATB,
            Self::Senders(_) => Self::PATTERN,
        }
    }

    fn name(self) -> Cow<'static, str> {
        self.key().to_string_lossy()
    }

    /// Reads `gridmpi_matb`, or says what it must be.
    pub(crate) fn matb(text: &str) -> Result<Self, &'static str> {
        let wanted = "it must be bits per second, 100k at least, such as 20000000 or 20M";
        const { assert!(LEAST_RATE == 100_000) };
        let rate = gridmpi_bootstrap::env::parse_rate(text).filter(|rate| *rate >= LEAST_RATE);
        rate.map(Self::Rate).ok_or(wanted)
    }

    /// Reads `gridmpi_pattern`, or says what it must be.
    pub(crate) fn pattern(text: &str) -> Result<Self, &'static str> {
        let wanted = "it must be \"all\", \"half\" or how many nodes send at once, more than 0";
        let senders = match text {
            "all" => Senders::All,
            "half" => Senders::Half,
            count => Senders::Count(count.parse().ok().filter(|count| *count > 0).ok_or(wanted)?),
        };
        Ok(Self::Senders(senders))
    }
}

impl Matb {
    pub(crate) fn new(table: &JobTable, ours: usize, me: ProcId) -> Self {
        let (nodes, mates) = pacing::mates(table, ours, me);
        let others = (0..table.clusters.len()).filter(|&to| to != ours);
        let shared = others.filter_map(|to| table.network.carried(ours, to)).min();
        Self {
            shared,
            max_rate: shared.map(|bits| Box::new(kilobytes(bits as f64))),
            shown: Box::default(),
            interface: table.network.interface(ours),
            nodes,
            mates,
            followed: Mutex::default(),
        }
    }

    /// The address of `YAMPI_PSP_MAXRATE`.
    pub(crate) fn max_rate(&self) -> Option<*const c_int> {
        self.max_rate.as_deref().map(std::ptr::from_ref)
    }

    /// What the node may send now, bits per second: the least towards another cluster, and where nothing is paced what the
    /// nodes share.
    pub(crate) fn rate(&self, net: &Net) -> Option<f64> {
        let least = net.node_rates(self.mates).into_iter().flatten().reduce(f64::min);
        least.filter(|rate| rate.is_finite()).or(self.shared.map(|bits| bits as f64))
    }

    /// The address of `YAMPI_PSP_MATB`, as it is now.
    pub(crate) fn get(&self, net: &Net) -> Option<*const c_int> {
        self.shown.store(kilobytes(self.rate(net)?), Relaxed);
        Some(self.shown.as_ptr())
    }

    /// Sets the node's rate towards each other cluster, KB/s, at once. What cannot be is said and put right.
    pub(crate) fn put(&self, net: &Net, wanted: c_int) {
        let name = "YAMPI_PSP_MATB";
        match enough(f64::from(wanted) * KB) {
            Ok(rate) => self.hold(net, rate, name, Unit::Kilobytes),
            Err(problem) => tell(&format!(
                "{name}: {wanted} KB/s {problem}; nothing is changed. Put {} or more, or delete the attribute",
                (LEAST_RATE as f64 / KB).ceil()
            )),
        }
    }

    /// The same in bits per second, more than 0.
    pub(crate) fn set(&self, net: &Net, wanted: u64) {
        let name = "gridmpi_matb";
        match enough(wanted as f64) {
            Ok(rate) => self.hold(net, rate, name, Unit::Bits),
            Err(problem) => tell(&format!(
                "{name}: {wanted} bit/s {problem}; nothing is changed. Write {LEAST_RATE} or more, or 0 for the job's own choice"
            )),
        }
    }

    /// Lets the node keep to a rate that `name`, no hint, has asked for.
    fn hold(&self, net: &Net, wanted: Rate, name: &str, unit: Unit) {
        let node = self.within_interface(wanted, name, unit, tell);
        self.keep_to(net, Some(node), None);
    }

    /// Follows one of the hints that were given together on a communicator, each with its text, as if the program had put a rate; what is
    /// wrong goes to `tell`.
    pub(crate) fn hint(
        &self,
        net: &Net,
        on: ContextId,
        hints: Vec<(Hint, String)>,
        tell: impl Fn(&str),
    ) {
        if let Some((node, key, value)) = self.chosen(hints, tell) {
            self.keep_to(net, Some(node), Some(Followed { on, key, value }));
        }
    }

    /// The first hint that can be followed: the node's rate, its key, its value. What of it cannot be is put right.
    fn chosen(
        &self,
        hints: Vec<(Hint, String)>,
        tell: impl Fn(&str),
    ) -> Option<(Rate, &'static CStr, String)> {
        let asked = |(hint, text)| Some((hint, text, self.asked(hint, &tell)?));
        let mut sound = hints.into_iter().filter_map(asked);
        let (hint, text, wanted): (Hint, String, Rate) = sound.next()?;
        let name = hint.name();
        for (other, ..) in sound {
            tell(&format!("{}: {name} is given with it, and counts; it is ignored", other.name()));
        }
        let text = self.within_cluster(hint, text, &tell);
        let node = self.within_interface(wanted, &name, Unit::Bits, &tell);
        let is_less = node < wanted && hint.key() == Hint::MATB;
        let value = if is_less { node.bits_per_second().to_string() } else { text };
        Some((node, hint.key(), value))
    }

    /// The rate that a hint asks for, if it can be one.
    fn asked(&self, hint: Hint, tell: impl Fn(&str)) -> Option<Rate> {
        let name = hint.name();
        let Some(wanted) = self.wanted(hint) else {
            tell(&format!(
                "{name}: the bandwidth of the link is not known, and so nothing to be shared; it is ignored"
            ));
            return None;
        };
        let ignored =
            |problem| tell(&format!("{name}: {wanted} bit/s for a node {problem}; it is ignored"));
        enough(wanted as f64).map_err(ignored).ok()
    }

    /// What a hint asks for, bits per second; `None` where no link is known.
    fn wanted(&self, hint: Hint) -> Option<u64> {
        match hint {
            Hint::Rate(bits) => Some(bits),
            Hint::Senders(senders) => Some(self.shared? / senders.of(self.nodes)),
        }
    }

    /// The text of a hint, but no more senders than this cluster has nodes.
    fn within_cluster(&self, hint: Hint, text: String, tell: impl Fn(&str)) -> String {
        let all = Senders::All.of(self.nodes);
        match hint {
            Hint::Senders(Senders::Count(count)) if count > all => {
                tell(&format!(
                    "{}: {count} is more than the nodes of this cluster; it is {all} now",
                    hint.name()
                ));
                all.to_string()
            }
            _ => text,
        }
    }

    /// The hint that the node keeps to, if it was given on this communicator.
    pub(crate) fn followed(&self, on: ContextId) -> Option<Followed> {
        self.followed.lock().clone().filter(|followed| followed.on == on)
    }

    /// The rate, but no more than the node's interface carries. `name` has asked for it.
    fn within_interface(&self, wanted: Rate, name: &str, unit: Unit, tell: impl Fn(&str)) -> Rate {
        let interface = self.interface.and_then(|bits| Rate::from_bits_per_second(bits as f64));
        let Some(interface) = interface.filter(|interface| *interface < wanted) else {
            return wanted;
        };
        let [said, now] = [wanted, interface].map(|rate| unit.write(rate));
        tell(&format!("{name}: {said} is more than the node's interface carries; it is {now} now"));
        interface
    }

    /// Lets the node keep to a rate, or to the job's choice, and remembers which hint has asked for it, if one has.
    fn keep_to(&self, net: &Net, node: Option<Rate>, hint: Option<Followed>) {
        // Of several threads the same one is last for both.
        let mut followed = self.followed.lock();
        let own =
            |node: Rate| Rate::from_bits_per_second(node.bits_per_second() / self.mates as f64);
        net.hold(node.and_then(own));
        *followed = hint;
    }

    /// The job's own choice counts again.
    pub(crate) fn delete(&self, net: &Net) {
        self.keep_to(net, None, None);
    }
}

/// A rate with which a job gets on, or what is wrong with it.
fn enough(bits_per_second: f64) -> Result<Rate, &'static str> {
    let rate = Rate::from_bits_per_second(bits_per_second).ok_or("is no rate")?;
    Some(rate)
        .filter(|_| bits_per_second >= LEAST_RATE as f64)
        .ok_or("is too low for a job to get on")
}

/// Rounded; the conversion saturates.
fn kilobytes(bits_per_second: f64) -> c_int {
    (bits_per_second / KB).round() as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Of a cluster of four nodes that share a link of 160 Mbit/s.
    fn matb(interface: u64) -> Matb {
        Matb {
            shared: Some(160_000_000),
            max_rate: None,
            shown: Box::default(),
            interface: Some(interface),
            nodes: 4,
            mates: 1,
            followed: Mutex::default(),
        }
    }

    fn pattern(text: &str) -> (Hint, String) {
        (Hint::pattern(text).unwrap(), text.to_owned())
    }

    fn rate(text: &str) -> (Hint, String) {
        (Hint::matb(text).unwrap(), text.to_owned())
    }

    /// What counts of the hints, bits per second, and what is said.
    fn chosen(
        matb: &Matb,
        hints: &[(Hint, String)],
    ) -> (Option<(f64, &'static CStr, String)>, Vec<String>) {
        let said = RefCell::new(Vec::new());
        let chosen = matb.chosen(hints.to_vec(), |text| said.borrow_mut().push(text.to_owned()));
        let chosen = chosen.map(|(node, key, value)| (node.bits_per_second(), key, value));
        (chosen, said.into_inner())
    }

    #[test]
    fn rates_with_which_a_job_would_stand_still_are_refused() {
        assert_eq!(enough(100_000.0), Ok(Rate::from_bits_per_second(100_000.0).unwrap()));
        assert_eq!([0.0, -8000.0].map(enough), [Err("is no rate"); 2]);
        assert_eq!(enough(99_999.0), Err("is too low for a job to get on"));
    }

    #[test]
    fn hints_are_rates_or_numbers_of_senders_and_nonsense_is_named() {
        assert_eq!(Hint::matb("20M"), Ok(Hint::Rate(20_000_000)));
        for text in ["", "0", "-3", "fast", "1e9", "99999999999999999999"] {
            assert!(Hint::matb(text).unwrap_err().contains("100k at least"), "{text}");
            assert!(Hint::pattern(text).unwrap_err().contains("half"), "{text}");
        }
        // A job would stand still with it.
        assert!(Hint::matb("20").unwrap_err().contains("100k at least"));
        assert_eq!(Hint::matb("100k"), Ok(Hint::Rate(LEAST_RATE)));
        let senders = |text, nodes| match Hint::pattern(text) {
            Ok(Hint::Senders(senders)) => senders.of(nodes),
            other => panic!("{other:?}"),
        };
        assert_eq!([senders("all", 8), senders("half", 7), senders("3", 8)], [8, 4, 3]);
        assert_eq!([senders("half", 1), senders("9", 8)], [1, 8]);
    }

    #[test]
    fn of_two_hints_the_first_that_can_be_followed_counts_and_the_other_is_said_to_be_ignored() {
        let of_rate = Some((20e6, Hint::MATB, "20M".to_owned()));
        let of_pattern = Some((80e6, Hint::PATTERN, "half".to_owned()));
        let one = matb(1_000_000_000);
        assert_eq!(chosen(&one, &[rate("20M")]), (of_rate.clone(), vec![]));
        assert_eq!(chosen(&one, &[pattern("half")]), (of_pattern, vec![]));
        let ignored = "gridmpi_pattern: gridmpi_matb is given with it, and counts; it is ignored";
        // Nothing is put right of what is ignored.
        for text in ["half", "99"] {
            let both = chosen(&one, &[rate("20M"), pattern(text)]);
            assert_eq!(both, (of_rate.clone(), vec![ignored.to_owned()]), "{text}");
        }
        let unknown = Matb { shared: None, ..matb(1_000_000_000) };
        let (counts, said) = chosen(&unknown, &[rate("20M"), pattern("half")]);
        assert_eq!(counts, of_rate);
        assert!(said[0].starts_with("gridmpi_pattern: the bandwidth of the link"), "{said:?}");
        assert_eq!(said.len(), 1);
        assert_eq!(chosen(&one, &[]), (None, vec![]));
    }

    #[test]
    fn more_senders_than_nodes_are_all_of_them_and_too_many_for_the_link_none() {
        let one = matb(1_000_000_000);
        assert_eq!(chosen(&one, &[pattern("4")]).1, Vec::<String>::new());
        let (counts, said) = chosen(&one, &[pattern("5")]);
        assert_eq!(counts, Some((40e6, Hint::PATTERN, "4".to_owned())));
        let more = "gridmpi_pattern: 5 is more than the nodes of this cluster; it is 4 now";
        assert_eq!(said, [more]);
        let narrow = Matb { shared: Some(399_999), ..one };
        let (counts, said) = chosen(&narrow, &[pattern("all")]);
        assert_eq!(counts, None);
        let low =
            "gridmpi_pattern: 99999 bit/s for a node is too low for a job to get on; it is ignored";
        assert_eq!(said, [low]);
    }

    #[test]
    fn what_an_interface_does_not_carry_is_told_from_what_it_does_in_the_unit_of_the_question() {
        let one = matb(1_000_000_000);
        let (counts, said) = chosen(&one, &[rate("1000000001")]);
        assert_eq!(counts, Some((1e9, Hint::MATB, "1000000000".to_owned())));
        let more = "1000000001 bit/s is more than the node's interface carries; it is 1000000000 bit/s now";
        assert_eq!(said, [format!("gridmpi_matb: {more}")]);
        // A pattern stays what it was.
        let slow = matb(50_000_000);
        assert_eq!(chosen(&slow, &[pattern("1")]).0, Some((50e6, Hint::PATTERN, "1".to_owned())));
        let kilobytes = |interface, wanted: f64| {
            let said = RefCell::new(String::new());
            let wanted = Rate::from_bits_per_second(wanted * KB).unwrap();
            let tell = |text: &str| text.clone_into(&mut said.borrow_mut());
            matb(interface).within_interface(wanted, "X", Unit::Kilobytes, tell);
            said.into_inner()
        };
        let carries = "is more than the node's interface carries";
        assert_eq!(
            kilobytes(1_000_000_000, 125_001.0),
            format!("X: 125001 KB/s {carries}; it is 125000 KB/s now")
        );
        assert_eq!(
            kilobytes(1_004_800, 126.0),
            format!("X: 126 KB/s {carries}; it is 125.6 KB/s now")
        );
        assert_eq!(kilobytes(1_000_000_000, 125_000.0), "");
    }
}
