//! Who looks at whom, for `gridmpi doctor`.

use crate::conductor::{Conductor, HERE, THERE};
use crate::error::ProbeError;
use crate::measure::Options;
use crate::message::{MAX_WAYS, Order, Target, Word};
use crate::reach::Reach;
use crate::result::PathReport;
use crate::road::{Registered, Road};
use gridmpi_doctor::{Circuit, Facts, Idle, JobRelay, Link, Measured, Node, Path, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

/// Longest time for a node to look at another one: two connections, bulk both ways, and the packets that are tried then,
/// on round trips of up to a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds for which connections are left alone. The first is the longest that a job's own are before they are looked after.
const IDLE: [u32; 6] = [10, 15, 30, 60, 120, 300];
const IDLE_PATIENCE: Duration = Duration::from_secs(330);
/// Processes that a look at relays counts at most.
const MOST: usize = 1 << 20;

/// How thorough to be.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// Every node, and not only the first and the last of each cluster.
    pub all_nodes: bool,
    /// Leave connections idle, which takes five minutes.
    pub long: bool,
    /// Fill the links.
    pub bandwidth: Option<Options>,
}

/// Two clusters that a job would join.
#[derive(Clone, Debug)]
pub struct Way {
    /// Which, and what is said of the link.
    pub link: Link,
    /// Through relays, and not directly.
    pub by_relays: bool,
}

/// From one node to another, by their positions.
type Pair = (usize, usize);

impl Conductor<'_> {
    /// Looks at everything that a job between clusters joined by `ways` would use. What cannot be looked at is told in the
    /// facts, too.
    pub fn examine(&mut self, ways: &[Way], how: &How) -> Facts {
        let mut facts =
            Facts { links: ways.iter().map(|way| way.link.clone()).collect(), ..Facts::default() };
        facts.job_relays = self.job_relays();
        if let Err(error) = self.look(ways, how, &mut facts) {
            let what = format!("not everything could be looked at: {error}");
            facts.troubles.push(Trouble { cluster: None, what, at: Vec::new(), hint: None });
        }
        facts
    }

    /// Looks at what is between here and the other side, after [`Conductor::by_hand`].
    pub fn examine_by_hand(&mut self, how: &How) -> Facts {
        let between = [HERE.to_owned(), THERE.to_owned()];
        let link = Link { between, bandwidth: None, delay_us: None, dialler: None, measured: None };
        self.examine(&[Way { link, by_relays: false }], &How { all_nodes: true, ..how.clone() })
    }

    fn job_relays(&self) -> Vec<JobRelay> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = |relay: &SocketAddr| {
            let newest = troubles.iter().rev().find(|(of, _)| of == relay);
            newest.map(|(_, why)| why.clone())
        };
        let fact = |relay: &SocketAddr| JobRelay { relay: *relay, problem: problem(relay) };
        self.relays.iter().map(fact).collect()
    }

    fn look(&mut self, ways: &[Way], how: &How, facts: &mut Facts) -> Result<(), ProbeError> {
        let (direct, relayed): (Vec<&Way>, Vec<&Way>) = ways.iter().partition(|way| !way.by_relays);
        let chosen = self.chosen(ways.iter(), how.all_nodes);
        self.machines(&chosen, facts)?;
        let pairs = self.pairs(&direct, &chosen);
        self.paths(&pairs, facts)?;
        let pairs = self.pairs(&relayed, &chosen);
        let users: BTreeSet<usize> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let users: Vec<usize> =
            chosen.iter().copied().filter(|node| users.contains(node)).collect();
        let registered = self.register(users, facts)?;
        self.circuits(&pairs, &registered, facts)?;
        if let Some(options) = &how.bandwidth {
            self.links(ways, &registered, options, facts)?;
        }
        if how.long {
            self.idle_times(ways, &chosen, &registered, facts)?;
        }
        Ok(())
    }

    fn node(&self, index: usize) -> Node {
        let node = &self.nodes[index];
        Node { cluster: node.cluster.clone(), host: node.host.clone() }
    }

    fn target(&self, index: usize) -> Target {
        let node = &self.nodes[index];
        Target { to: node.addresses.clone(), id: node.id, node: self.node(index) }
    }

    /// The nodes that look and are looked at, cluster by cluster.
    fn chosen<'w>(&self, ways: impl Iterator<Item = &'w Way>, all: bool) -> Vec<usize> {
        let mut clusters: Vec<&String> = Vec::new();
        for name in ways.flat_map(|way| &way.link.between) {
            if !clusters.contains(&name) {
                clusters.push(name);
            }
        }
        let of = |name: &String| {
            let mut nodes = self.of(name);
            nodes.sort_by(|a, b| self.nodes[*a].host.cmp(&self.nodes[*b].host));
            if !all && nodes.len() > 2 {
                nodes = vec![nodes[0], nodes[nodes.len() - 1]];
            }
            nodes
        };
        clusters.into_iter().flat_map(of).collect()
    }

    fn machines(&mut self, chosen: &[usize], facts: &mut Facts) -> Result<(), ProbeError> {
        for node in chosen {
            self.order(*node, &Order::Examine)?;
        }
        let told = |_, word| if let Word::Machine(machine) = word { Some(*machine) } else { None };
        facts.machines = self.hear(chosen, PATIENCE, "what its machine is like", told)?;
        facts.machines.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(())
    }

    /// Both directions between any two nodes of clusters that `ways` join.
    fn pairs(&self, ways: &[&Way], chosen: &[usize]) -> Vec<Pair> {
        // Where only one side connects the other need not be able to.
        let joins = |a: usize, b: usize| {
            let (a, b) = (&self.nodes[a].cluster, &self.nodes[b].cluster);
            let dials = |link: &Link| link.dialler.as_ref().is_none_or(|dialler| dialler == a);
            ways.iter().any(|way| way.link.joins(a, b) && dials(&way.link))
        };
        let of = |a: usize| chosen.iter().filter(move |b| joins(a, **b)).map(move |b| (a, *b));
        let all = chosen.iter().flat_map(|a| of(*a));
        // Who tells no address cannot be visited: one side of a measurement by hand may be so.
        all.filter(|(_, b)| !self.nodes[*b].addresses.is_empty()).collect()
    }

    /// Has all of `pairs` do something, nobody twice at a time; `done` takes what the first of each says.
    fn in_turn<T>(
        &mut self,
        pairs: &[Pair],
        (patience, what): (Duration, &'static str),
        order: impl Fn(&Self, Pair) -> Order,
        wanted: impl Fn(Word) -> Option<T>,
        mut done: impl FnMut(&Self, Pair, T),
    ) -> Result<(), ProbeError> {
        let mut left = pairs.to_vec();
        while !left.is_empty() {
            // Whoever has nothing to do in many turns is still wanted.
            self.keep_all();
            let (now, later) = next(&left);
            left = later;
            for pair in &now {
                let order = order(self, *pair);
                self.order(pair.0, &order)?;
            }
            let from: Vec<usize> = now.iter().map(|pair| pair.0).collect();
            let told =
                self.hear(&from, patience, what, |node, word| Some((node, wanted(word)?)))?;
            for (node, found) in told {
                if let Some(pair) = now.iter().find(|pair| pair.0 == node) {
                    done(self, *pair, found);
                }
            }
        }
        Ok(())
    }

    fn paths(&mut self, pairs: &[Pair], facts: &mut Facts) -> Result<(), ProbeError> {
        let paths = &mut facts.paths;
        self.in_turn(
            pairs,
            (PATIENCE, "what it sees of another node"),
            |own, (_, to)| Order::Visit(own.target(to)),
            |word| if let Word::Visited(visit) = word { Some(*visit) } else { None },
            |own, (from, to), visit| {
                let (from, to) = (own.node(from), own.node(to));
                paths.push(Path { from, to, visit, idle: Vec::new() });
            },
        )?;
        facts.paths.sort_by(|a, b| (&a.from, &a.to).cmp(&(&b.from, &b.to)));
        Ok(())
    }

    /// Has nodes, cluster by cluster, be at their relays, numbered as ranks are.
    fn register(
        &mut self,
        mut users: Vec<usize>,
        facts: &mut Facts,
    ) -> Result<Registered, ProbeError> {
        users.truncate(MOST);
        for (number, node) in users.iter().enumerate() {
            let is_same = |other: &&usize| self.nodes[**other].cluster == self.nodes[*node].cluster;
            let first = users.iter().position(|other| is_same(&other)).unwrap_or(number);
            let count = users.iter().filter(is_same).count();
            let [me, first, count] = [number, first, count].map(|n| n as u32);
            self.order(*node, &Order::Register { me, first, count })?;
        }
        let told = |_, word| if let Word::Registered(relays) = word { Some(relays) } else { None };
        let told = self.hear(&users, PATIENCE, "how it stands with its relays", told)?;
        facts.relays = told.concat();
        facts.relays.sort_by(|a, b| (&a.node, &a.relay).cmp(&(&b.node, &b.relay)));
        Ok(users.into_iter().zip(0..).collect())
    }

    fn circuits(
        &mut self,
        pairs: &[Pair],
        registered: &Registered,
        facts: &mut Facts,
    ) -> Result<(), ProbeError> {
        let number = |node: usize| registered.get(&node).copied().unwrap_or(u32::MAX);
        let circuits = &mut facts.circuits;
        self.in_turn(
            pairs,
            (PATIENCE, "circuits to another node"),
            |own, (_, to)| Order::Circuits { to: own.target(to), process: number(to) },
            |word| if let Word::Circuits(circuits) = word { Some(circuits) } else { None },
            |_, _, found| circuits.extend(found),
        )?;
        facts.circuits.sort_by(|a, b| (&a.from, &a.to, &a.relay).cmp(&(&b.from, &b.to, &b.relay)));
        Ok(())
    }

    /// Measures `ways`, one after the other; through relays by those that lead everywhere.
    ///
    /// # Errors
    /// See [`ProbeError`].
    pub fn measure_all(
        &mut self,
        ways: &[Way],
        options: &Options,
    ) -> Result<Vec<PathReport>, ProbeError> {
        let mut facts = Facts::default();
        let relayed: Vec<&Way> = ways.iter().filter(|way| way.by_relays).collect();
        let all = self.chosen(relayed.iter().copied(), true);
        let registered = self.register(all, &mut facts)?;
        let few = self.chosen(relayed.iter().copied(), false);
        let pairs = self.pairs(&relayed, &few);
        self.circuits(&pairs, &registered, &mut facts)?;
        let one = |way: &Way| {
            let Way { link, by_relays } = way;
            let (between, road) = if *by_relays {
                let road = Road::of(link, true, &facts, &registered);
                road.ok_or_else(|| no_circuit(link, &facts))?
            } else {
                (dialler_first(link), Road::Direct)
            };
            let report = self.measure_on(&road, between, options)?;
            let is_turned = between[0] != link.between[0];
            Ok(if is_turned { report.turned() } else { report })
        };
        ways.iter().map(one).collect()
    }

    /// Fills the ways that lead somewhere, one after the other.
    fn links(
        &mut self,
        ways: &[Way],
        registered: &Registered,
        options: &Options,
        facts: &mut Facts,
    ) -> Result<(), ProbeError> {
        self.set_clocks()?;
        for Way { link, by_relays } in ways {
            let Some((between, road)) = Road::of(link, *by_relays, facts, registered) else {
                continue;
            };
            let report = self.measure_on(&road, between, options)?;
            let [a, b] = between;
            if let Some(link) = facts.links.iter_mut().find(|link| link.joins(a, b)) {
                link.measured = Some(summary(&report, *by_relays));
            }
        }
        Ok(())
    }

    /// One pair of nodes for each two clusters, both ways; through relays by each that leads there.
    fn idle_times(
        &mut self,
        ways: &[Way],
        chosen: &[usize],
        registered: &Registered,
        facts: &mut Facts,
    ) -> Result<(), ProbeError> {
        let mut tried: BTreeMap<Pair, Vec<Reach>> = BTreeMap::new();
        for way in ways {
            let all = self.pairs(&[way], chosen);
            for from in &way.link.between {
                let ours = all.iter().filter(|pair| self.nodes[pair.0].cluster == *from);
                let found = ours.map(|pair| (*pair, self.open_ways(*pair, registered, facts)));
                tried.extend(found.into_iter().find(|(_, by)| !by.is_empty()));
            }
        }
        let pairs: Vec<Pair> = tried.keys().copied().collect();
        self.in_turn(
            &pairs,
            (IDLE_PATIENCE, "idle connections"),
            |own, pair| {
                let by = tried.get(&pair).cloned().unwrap_or_default();
                Order::Idle { to: own.target(pair.1), by, seconds: IDLE.to_vec() }
            },
            |word| if let Word::Idled(idle) = word { Some(idle) } else { None },
            |own, pair, idle: Vec<Vec<Idle>>| {
                let ends = (own.node(pair.0), own.node(pair.1));
                for (way, idle) in tried.get(&pair).into_iter().flatten().zip(idle) {
                    note_idle(&ends, way, idle, facts);
                }
            },
        )
    }

    /// The ways on which something came from one node to the other.
    fn open_ways(&self, (from, to): Pair, registered: &Registered, facts: &Facts) -> Vec<Reach> {
        let ends = (self.node(from), self.node(to));
        let mut paths = facts.paths.iter();
        let is_open =
            |path: &Path| path.from == ends.0 && path.to == ends.1 && path.visit.depth.is_some();
        if paths.any(is_open) {
            return vec![self.reach(&Road::Direct, to)];
        }
        let stands =
            |one: &&Circuit| one.from == ends.0 && one.to == ends.1 && one.problem.is_none();
        let process = registered.get(&to).copied().unwrap_or(u32::MAX);
        let by =
            |circuit: &Circuit| Reach::Circuits { relays: vec![circuit.relay.clone()], process };
        facts.circuits.iter().filter(stands).take(MAX_WAYS).map(by).collect()
    }
}

/// The cluster first that makes the connections.
fn dialler_first(link: &Link) -> [&str; 2] {
    let [a, b] = link.between.each_ref().map(String::as_str);
    if link.dialler.as_deref() == Some(b) { [b, a] } else { [a, b] }
}

fn no_circuit(link: &Link, facts: &Facts) -> ProbeError {
    let of = |node: &Node| link.between.contains(&node.cluster);
    let relays = facts.relays.iter().filter(|fact| of(&fact.node));
    let relays = relays.filter_map(|fact| Some((&fact.relay, fact.problem.as_ref()?)));
    let circuits = facts.circuits.iter().filter(|circuit| of(&circuit.from) && of(&circuit.to));
    let circuits = circuits.filter_map(|circuit| Some((&circuit.relay, circuit.problem.as_ref()?)));
    let said = relays.chain(circuits).next();
    let why = said.map_or_else(
        || "their nodes know of none".to_owned(),
        |(relay, problem)| format!("relay {relay}: {problem}"),
    );
    ProbeError::NoCircuit { between: link.between.clone(), why }
}

fn note_idle((from, to): &(Node, Node), way: &Reach, idle: Vec<Idle>, facts: &mut Facts) {
    match way {
        Reach::Direct(_) => {
            let mut paths = facts.paths.iter_mut();
            if let Some(path) = paths.find(|path| path.from == *from && path.to == *to) {
                path.idle = idle;
            }
        }
        Reach::Circuits { relays, .. } => {
            let mut circuits = facts.circuits.iter_mut();
            let is_it = |one: &&mut Circuit| {
                one.from == *from && one.to == *to && relays.contains(&one.relay)
            };
            if let Some(circuit) = circuits.find(is_it) {
                circuit.idle = idle;
            }
        }
    }
}

/// What can be done at once, and what is left for later.
fn next(left: &[Pair]) -> (Vec<Pair>, Vec<Pair>) {
    let (mut from, mut to) = (BTreeSet::new(), BTreeSet::new());
    left.iter().partition(|pair| {
        let is_free = !from.contains(&pair.0) && !to.contains(&pair.1);
        is_free && from.insert(pair.0) && to.insert(pair.1)
    })
}

fn summary(report: &PathReport, by_relays: bool) -> Measured {
    let again = |transfer: &crate::result::Transfer| {
        let permille = transfer.retransmitted.saturating_mul(1000) / transfer.segments.max(1);
        u32::try_from(permille).unwrap_or(1000)
    };
    let worse = report.together.iter().map(again).max();
    Measured {
        bandwidth: report.bandwidth(),
        is_links_own: report.is_links_own(),
        // Nodes have counted what they sent to their own relays.
        again_permille: worse.filter(|_| !by_relays),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conductor::Gathering;
    use crate::message::{Hello, Purpose};
    use gridmpi_bootstrap::Secret;
    use gridmpi_bootstrap::line::{self, Pass};
    use gridmpi_doctor::Severity;
    use std::net::TcpListener;
    use std::thread::JoinHandle;
    use std::time::Instant;

    /// A node that sees nothing, and says how many times it was told to stay.
    fn node(cluster: &str, at: SocketAddr, pass: &Pass) -> JoinHandle<usize> {
        let (cluster, host) = (cluster.to_owned(), format!("{cluster}1"));
        let (pass, soon) = (pass.clone(), Instant::now() + Duration::from_secs(20));
        std::thread::spawn(move || {
            let mut line = line::dial(&[at], &pass, soon).unwrap();
            line.send(&Purpose::Words, soon).unwrap();
            let hello = Hello { cluster, host, of: Some(1), addresses: vec![at], id: 0 };
            line.send(&Word::Hello(hello), soon).unwrap();
            let mut stays = 0;
            loop {
                match line.receive(soon).unwrap() {
                    Order::Stay { .. } => stays += 1,
                    Order::Visit(_) => {
                        line.send(&Word::Visited(Box::default()), soon).unwrap();
                    }
                    _ => return stays,
                }
            }
        })
    }

    #[test]
    fn those_whose_turn_does_not_come_are_told_to_stay_in_each_turn() {
        let pass = Pass::from(&Secret::random().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let nodes = ["a", "b", "c"].map(|cluster| node(cluster, at, &pass));
        let clusters = ["a", "b", "c"].map(|name| (name.to_owned(), Some(1))).to_vec();
        let wait = Duration::from_secs(20);
        let gathering = Gathering { listeners: vec![listener], relays: None, pass, clusters, wait };
        let mut watch = || Ok(());
        let (mut conductor, missing) = Conductor::gather_some(gathering, &mut watch).unwrap();
        assert!(missing.is_none());
        let (a, b) = (conductor.of("a")[0], conductor.of("b")[0]);
        let mut facts = Facts::default();
        // Three turns, since nobody has two at once.
        conductor.paths(&[(a, b), (a, b), (a, b)], &mut facts).unwrap();
        conductor.leave();
        assert_eq!(facts.paths.len(), 3);
        assert_eq!(nodes.map(|node| node.join().unwrap()), [4, 4, 4]);
    }

    #[test]
    fn what_forgets_sooner_than_a_jobs_connections_are_looked_after_is_an_error() {
        let found = |forgets_after| {
            let idle = |seconds| Idle { seconds, is_alive: seconds < forgets_after };
            let node = |name: &str| Node { cluster: name.to_owned(), host: name.to_owned() };
            let idle = IDLE.map(idle).to_vec();
            let path = Path {
                from: node("a"),
                to: node("b"),
                visit: gridmpi_doctor::Visit::default(),
                idle,
            };
            let facts = Facts { paths: vec![path], ..Facts::default() };
            let all = gridmpi_doctor::findings(&facts);
            all.into_iter().find(|finding| finding.code == "idle").map(|finding| finding.severity)
        };
        for seconds in 1..=10 {
            assert_eq!(found(seconds), Some(Severity::Error), "{seconds} s");
        }
        assert_eq!(found(12), Some(Severity::Note));
        assert_eq!(found(u32::MAX), Some(Severity::Ok));
    }

    #[test]
    fn nobody_does_two_things_at_once_and_all_is_done() {
        let mut left: Vec<Pair> = (0..4).flat_map(|a| (4..9).map(move |b| (a, b))).collect();
        left.extend((4..9).flat_map(|a| (0..4).map(move |b| (a, b))));
        let (mut rounds, mut all) = (0, left.len());
        while !left.is_empty() {
            let (now, later) = next(&left);
            let from: BTreeSet<usize> = now.iter().map(|pair| pair.0).collect();
            let to: BTreeSet<usize> = now.iter().map(|pair| pair.1).collect();
            assert!(!now.is_empty() && from.len() == now.len() && to.len() == now.len());
            all -= now.len();
            (left, rounds) = (later, rounds + 1);
        }
        assert!(all == 0 && rounds <= 8, "{rounds}");
    }
}
