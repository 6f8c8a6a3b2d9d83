//! Who tells the nodes what to do, and hears what they saw.

use crate::admission::{self, Door, Outpost, Visitor};
use crate::error::ProbeError;
use crate::message::{Hello, MAX_ADDRESSES, Order, Purpose, Word};
use crate::node::{self, Identity};
use gridmpi_bootstrap::RelayAccess;
use gridmpi_bootstrap::line::{self, Line, LineError, LineReader, LineWriter, Pass};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for one short message.
const SHORT: Duration = Duration::from_secs(10);
/// How often it is asked whether waiting is of use.
const LOOK: Duration = Duration::from_millis(100);
/// After a complaint, news of a death are waited for so long.
const NEWS: Duration = Duration::from_millis(500);
/// Nodes that may be here at once, those to be sent away again included.
const MAX_NODES: usize = 4096;
/// Times that a clock is asked for.
const CLOCKS: u32 = 5;
/// Words that wait to be heard.
const WORDS: usize = 4096;
/// A node's line is read for so long without a word, or for as long as others are waited for.
const LONG: Duration = Duration::from_secs(3600);
/// Nodes wait for orders so much longer than we for other nodes.
const MORE: Duration = Duration::from_secs(60);
/// Nobody is waited for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(366 * 86400);

/// Says why waiting has become useless.
pub type Watch<'a> = &'a mut dyn FnMut() -> Result<(), String>;

/// How nodes come that launchers start.
pub struct Gathering {
    /// Where they come to.
    pub listeners: Vec<TcpListener>,
    /// Relays at which we wait as a job's coordinator would, for those who cannot come there.
    pub relays: Option<RelayAccess>,
    /// What they prove to hold.
    pub pass: Pass,
    /// The clusters, and how many nodes of each come if it is known.
    pub clusters: Vec<(String, Option<u32>)>,
    /// How long they may take.
    pub wait: Duration,
}

/// This process as a node of its own.
pub struct Here {
    /// What it is called.
    pub host: String,
    /// The interface or network that the user names.
    pub interface: Option<String>,
    /// Where others reach it, and the sockets behind; none, if nobody is to.
    pub addresses: Vec<SocketAddr>,
    /// The sockets behind those addresses.
    pub listeners: Vec<TcpListener>,
}

impl Default for Here {
    fn default() -> Self {
        let host = "this machine".to_owned();
        Self { host, interface: None, addresses: Vec::new(), listeners: Vec::new() }
    }
}

impl Here {
    /// One that others reach at every address that a process here would tell.
    ///
    /// # Errors
    /// When `interface` fits nothing here, or no port is free.
    pub fn listening(interface: Option<String>) -> Result<Self, ProbeError> {
        let listen = gridmpi_net::Listen { interface: interface.clone(), port: 0 };
        let bound =
            gridmpi_net::bind(&listen).map_err(|error| ProbeError::Here(error.to_string()))?;
        let addresses = bound.addresses().iter().copied().take(MAX_ADDRESSES).collect();
        let listeners = bound.into_listeners().into_iter().map(TcpListener::from).collect();
        Ok(Self { host: crate::host(), interface, addresses, listeners })
    }
}

/// One node, as the conductor knows it.
pub(crate) struct Node {
    pub(crate) cluster: String,
    pub(crate) host: String,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) id: u64,
    writer: LineWriter,
    /// What is to be added to its clock, microseconds.
    pub(crate) offset_us: i64,
}

/// All nodes of a measurement.
pub struct Conductor<'a> {
    pub(crate) nodes: Vec<Node>,
    words: Receiver<(usize, Result<Word, LineError>)>,
    mouths: SyncSender<(usize, Result<Word, LineError>)>,
    watch: Watch<'a>,
    pub(crate) began: Instant,
    pub(crate) rounds: u32,
    /// How long other nodes may take to come.
    wait: Duration,
    /// Clusters whose nodes have not all come, and how many have.
    missing: Vec<(String, String)>,
    /// Our relays.
    pub(crate) relays: Vec<SocketAddr>,
    /// Which of them cannot be used, and why.
    pub(crate) troubles: Troubles,
    _door: Option<Door>,
}

type Troubles = Arc<Mutex<Vec<(SocketAddr, String)>>>;

type Arrival = (Hello, Line);

/// Listens for nodes that come by themselves.
fn reception(
    listeners: Vec<TcpListener>,
    pass: &Pass,
    outpost: Option<Outpost>,
) -> Result<(Door, Receiver<Arrival>), ProbeError> {
    let (sender, arrivals) = sync_channel(MAX_NODES);
    let door = admission::open(listeners, pass, outpost, move |visitor| {
        let Visitor::Proven(mut line) = visitor else { return };
        let deadline = Instant::now() + SHORT;
        if !matches!(line.receive(deadline), Ok(Purpose::Words)) {
            return;
        }
        if let Ok(hello) = greeting(&mut line, deadline) {
            let _ = sender.try_send((hello, line));
        }
    });
    let door = door.map_err(|error| ProbeError::Here(format!("cannot listen: {error}")))?;
    Ok((door, arrivals))
}

fn greeting(line: &mut Line, deadline: Instant) -> Result<Hello, LineError> {
    match line.receive(deadline)? {
        word @ Word::Hello(_) if !word.is_sound() => {
            Err(LineError::Protocol("an unsound greeting".to_owned()))
        }
        Word::Hello(hello) => Ok(hello),
        other => Err(LineError::Protocol(format!("{other:?} instead of a greeting"))),
    }
}

impl<'a> Conductor<'a> {
    fn new(watch: Watch<'a>, door: Option<Door>) -> Self {
        let (mouths, words) = sync_channel(WORDS);
        let began = Instant::now();
        let troubles = Troubles::default();
        let (nodes, missing, relays) = (Vec::new(), Vec::new(), Vec::new());
        let (rounds, wait, _door) = (0, Duration::ZERO, door);
        Self { nodes, words, mouths, watch, began, rounds, wait, missing, relays, troubles, _door }
    }

    /// Waits until every cluster's nodes have come. Of several processes on one host one stays.
    ///
    /// # Errors
    /// When some do not come in time, or `watch` says that they will not.
    pub fn gather(gathering: Gathering, watch: Watch<'a>) -> Result<Self, ProbeError> {
        let (mut own, missing) = Self::gather_some(gathering, watch)?;
        missing.map_or(Ok(()), |error| Err(own.explained(error)))?;
        own.set_clocks()?;
        Ok(own)
    }

    /// With what may have kept nodes away: relays that cannot be used.
    fn explained(&self, error: ProbeError) -> ProbeError {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        let newest: BTreeMap<_, _> = troubles.iter().map(|(relay, why)| (relay, why)).collect();
        let told: String =
            newest.into_iter().map(|(relay, why)| format!("; relay {relay}: {why}")).collect();
        if told.is_empty() { error } else { ProbeError::Ended(format!("{error}{told}")) }
    }

    /// As [`Conductor::gather`]; those who have come by then stay, with the reason why others have not.
    ///
    /// # Errors
    /// When this machine does not let us listen.
    pub fn gather_some(
        gathering: Gathering,
        watch: Watch<'a>,
    ) -> Result<(Self, Option<ProbeError>), ProbeError> {
        let troubles = Troubles::default();
        let told = Arc::clone(&troubles);
        let resolved = gathering.relays.as_ref().map_or(Ok(Vec::new()), RelayAccess::resolve);
        let relays = resolved.map_err(ProbeError::Here)?;
        let outpost = gathering.relays.map(|access| Outpost {
            relays: access,
            at: relays.clone(),
            trouble: Box::new(move |relay, why| {
                told.lock().unwrap_or_else(PoisonError::into_inner).push((relay, why));
            }),
        });
        let (door, arrivals) = reception(gathering.listeners, &gathering.pass, outpost)?;
        let mut own = Self::new(watch, Some(door));
        (own.relays, own.troubles) = (relays, troubles);
        own.wait = gathering.wait.min(LONGEST_WAIT);
        let mut roll = Roll::new(&gathering.clusters);
        let deadline = Instant::now() + own.wait;
        loop {
            own.missing = roll.missing();
            let Some((_, first)) = own.missing.first() else { break };
            match arrivals.recv_timeout(LOOK) {
                Ok((hello, line)) if own.nodes.len() < MAX_NODES => {
                    if roll.enter(&hello) {
                        own.take(hello, line, None);
                    } else {
                        dismiss(line);
                    }
                }
                _ if Instant::now() >= deadline => {
                    let (missing, seconds) = (first.clone(), gathering.wait.as_secs());
                    return Ok((own, Some(ProbeError::Missing { missing, seconds })));
                }
                _ => {
                    if let Err(why) = (own.watch)() {
                        return Ok((own, Some(ProbeError::Ended(why))));
                    }
                }
            }
        }
        Ok((own, None))
    }

    /// Measures between here and nodes that listen at `targets` (each a name and its addresses). This process is the one node
    /// on its side.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub fn by_hand(
        targets: &[(String, Vec<SocketAddr>)],
        pass: &Pass,
        here: Here,
        watch: Watch<'a>,
    ) -> Result<Self, ProbeError> {
        let mut own = Self::new(watch, None);
        own.be_a_node(pass, here)?;
        for (name, addresses) in targets {
            let deadline = Instant::now() + SHORT;
            let mut line = line::dial(addresses, pass, deadline).map_err(ProbeError::Dial)?;
            line.send(&Purpose::Orders, deadline).map_err(ProbeError::Dial)?;
            let mut hello = greeting(&mut line, deadline).map_err(|error| match error {
                LineError::Gone(_) => ProbeError::Node {
                    node: name.clone(),
                    reason: "it is measuring with somebody else".to_owned(),
                },
                error => ProbeError::Dial(error),
            })?;
            hello.cluster = THERE.to_owned();
            // Where it was reached it will be reached again; what it says of itself may be private.
            own.take(hello, line, Some(addresses.clone()));
        }
        own.set_clocks()?;
        Ok(own)
    }

    /// This process serves itself, in a thread.
    fn be_a_node(&mut self, pass: &Pass, own: Here) -> Result<(), ProbeError> {
        let here = |error: std::io::Error| ProbeError::Here(format!("cannot listen: {error}"));
        let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).map_err(here)?;
        let at = [listener.local_addr().map_err(here)?];
        let (_door, arrivals) = reception(vec![listener], pass, None)?;
        let Here { host, interface, addresses, listeners } = own;
        let cluster = HERE.to_owned();
        let who = Identity { cluster, host, of: None, addresses, interface, relays: None };
        let pass = pass.clone();
        std::thread::spawn(move || node::attend(&at, &pass, listeners, who));
        let arrival = arrivals.recv_timeout(SHORT);
        let (hello, line) =
            arrival.map_err(|_| ProbeError::Here("cannot reach ourselves by 127.0.0.1".into()))?;
        self.take(hello, line, None);
        Ok(())
    }

    fn take(&mut self, hello: Hello, line: Line, addresses: Option<Vec<SocketAddr>>) {
        let (reader, writer) = line.split();
        let (number, words) = (self.nodes.len(), self.mouths.clone());
        let patience = LONG.max(self.wait + MORE);
        std::thread::spawn(move || hear(number, reader, &words, patience));
        let Hello { cluster, host, id, .. } = hello;
        let addresses = addresses.unwrap_or(hello.addresses);
        self.nodes.push(Node { cluster, host, addresses, id, writer, offset_us: 0 });
        self.keep(number);
    }

    /// Tells a node that it is still wanted, however long its next order takes to come.
    fn keep(&mut self, node: usize) {
        let for_s = u32::try_from((self.wait + MORE).as_secs()).unwrap_or(u32::MAX);
        // If it has gone, its reader tells.
        let _ = self.order(node, &Order::Stay { for_s });
    }

    /// The same to all: each may be the last one that is needed.
    pub(crate) fn keep_all(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.keep(node));
    }

    /// Positions of the nodes of a cluster.
    pub(crate) fn of(&self, cluster: &str) -> Vec<usize> {
        let is_of = |index: &usize| self.nodes[*index].cluster == cluster;
        (0..self.nodes.len()).filter(is_of).collect()
    }

    /// The clusters whose nodes had not all come when the others were waited for no longer, each with how many had, in words.
    #[must_use]
    pub fn missing(&self) -> &[(String, String)] {
        &self.missing
    }

    pub(crate) fn name(&self, node: usize) -> String {
        let Node { cluster, host, .. } = &self.nodes[node];
        if cluster == HERE { host.clone() } else { format!("node {host} of `{cluster}`") }
    }

    pub(crate) fn order(&mut self, node: usize, order: &Order) -> Result<(), ProbeError> {
        let sent = self.nodes[node].writer.send(order, Instant::now() + SHORT);
        sent.map_err(|error| self.lost(node, &error))
    }

    fn lost(&self, node: usize, error: &LineError) -> ProbeError {
        ProbeError::Lost { node: self.name(node), reason: error.to_string() }
    }

    /// The next word of anybody, if one comes within `patience`.
    pub(crate) fn word(&mut self, patience: Duration) -> Result<Option<(usize, Word)>, ProbeError> {
        match self.words.recv_timeout(patience.min(LOOK)) {
            Ok((node, Ok(Word::Failed(reason)))) => Err(self.failed(node, reason)),
            Ok((node, Ok(word))) if word.is_sound() => Ok(Some((node, word))),
            Ok((node, Ok(_))) => {
                Err(self.lost(node, &LineError::Protocol("an unsound word".to_owned())))
            }
            Ok((node, Err(error))) => Err(self.lost(node, &error)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                (self.watch)().map_err(ProbeError::Ended)?;
                Ok(None)
            }
        }
    }

    /// What one node complains of may be that another has just died: then that is the news.
    fn failed(&mut self, node: usize, reason: String) -> ProbeError {
        let deadline = Instant::now() + NEWS;
        while let Ok((other, word)) =
            self.words.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if let Err(error) = word {
                return self.lost(other, &error);
            }
        }
        if let Err(ended) = (self.watch)() {
            return ProbeError::Ended(ended);
        }
        ProbeError::Node { node: self.name(node), reason }
    }

    /// Waits until each of `from` has said what `wanted` looks for; other words are let pass.
    pub(crate) fn hear<T>(
        &mut self,
        from: &[usize],
        limit: Duration,
        what: &'static str,
        mut wanted: impl FnMut(usize, Word) -> Option<T>,
    ) -> Result<Vec<T>, ProbeError> {
        let deadline = Instant::now() + limit;
        let mut missing: BTreeSet<usize> = from.iter().copied().collect();
        let mut heard = Vec::new();
        while let Some(&first) = missing.first() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ProbeError::Silent { node: self.name(first), what });
            }
            let Some((node, word)) = self.word(left)? else { continue };
            if let Some(found) = wanted(node, word).filter(|_| missing.remove(&node)) {
                heard.push(found);
            }
        }
        Ok(heard)
    }

    /// Learns by how much each node's clock is apart from ours, as well as the fastest answer tells.
    pub(crate) fn set_clocks(&mut self) -> Result<(), ProbeError> {
        for node in 0..self.nodes.len() {
            let mut best = Duration::MAX;
            for _ in 0..CLOCKS {
                let asked = self.began.elapsed();
                self.order(node, &Order::Clock)?;
                let tell = |_, word| if let Word::Clock(us) = word { Some(us) } else { None };
                let told = self.hear(&[node], SHORT, "the time", tell)?;
                let took = self.began.elapsed() - asked;
                if let (true, Some(us)) = (took < best, told.first()) {
                    best = took;
                    let middle = (asked + took / 2).as_micros() as i64;
                    self.nodes[node].offset_us = middle.saturating_sub_unsigned(*us);
                }
            }
        }
        Ok(())
    }

    /// Lets all nodes go.
    pub fn leave(mut self) {
        for node in &mut self.nodes {
            let _ = node.writer.send(&Order::Leave, Instant::now() + Duration::from_secs(1));
        }
    }
}

impl Drop for Conductor<'_> {
    fn drop(&mut self) {
        // Their readers' threads end, and nodes that were not told to leave notice.
        self.nodes.iter().for_each(|node| node.writer.shutdown());
    }
}

/// The side of a measurement by hand that conducts, and the other.
pub(crate) const HERE: &str = "here";
pub(crate) const THERE: &str = "there";

fn dismiss(mut line: Line) {
    let _ = line.send(&Order::Leave, Instant::now() + Duration::from_secs(1));
}

fn hear(
    number: usize,
    mut reader: LineReader,
    words: &SyncSender<(usize, Result<Word, LineError>)>,
    patience: Duration,
) {
    loop {
        let word = reader.receive(Instant::now() + patience);
        let is_last = word.is_err();
        if words.send((number, word)).is_err() || is_last {
            return;
        }
    }
}

/// Who has come of whom.
struct Roll {
    clusters: Vec<Coming>,
}

struct Coming {
    name: String,
    expected: Option<u32>,
    came: u32,
    hosts: BTreeSet<String>,
}

impl Roll {
    fn new(clusters: &[(String, Option<u32>)]) -> Self {
        let coming = |(name, expected): &(String, Option<u32>)| Coming {
            name: name.clone(),
            expected: *expected,
            came: 0,
            hosts: BTreeSet::new(),
        };
        Self { clusters: clusters.iter().map(coming).collect() }
    }

    /// Notes one that has come; whether it is of use.
    fn enter(&mut self, hello: &Hello) -> bool {
        let Some(of) = self.clusters.iter_mut().find(|c| c.name == hello.cluster) else {
            return false;
        };
        of.expected = hello.of.or(of.expected);
        of.came += 1;
        of.hosts.insert(hello.host.clone())
    }

    /// The clusters that are not here yet, with how many have come, in words.
    fn missing(&self) -> Vec<(String, String)> {
        let is_missing = |of: &&Coming| of.came == 0 || of.expected.is_some_and(|n| of.came < n);
        let described = |of: &Coming| {
            let all = of.expected.map_or_else(String::new, |all| format!(" of {all}"));
            (of.name.clone(), format!("cluster `{}`: {}{all} nodes have come", of.name, of.came))
        };
        self.clusters.iter().filter(is_missing).map(described).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_waited_for_and_hosts_count_once() {
        let mut roll = Roll::new(&[("a".to_owned(), Some(3)), ("b".to_owned(), None)]);
        let hello = |cluster: &str, host: &str, of| Hello {
            cluster: cluster.to_owned(),
            host: host.to_owned(),
            of,
            addresses: Vec::new(),
            id: 0,
        };
        assert!(roll.enter(&hello("a", "x", None)) && !roll.enter(&hello("a", "x", None)));
        let words =
            |roll: &Roll| roll.missing().into_iter().map(|(_, words)| words).collect::<Vec<_>>();
        let none = "cluster `b`: 0 nodes have come";
        assert_eq!(words(&roll), ["cluster `a`: 2 of 3 nodes have come", none]);
        assert!(roll.enter(&hello("a", "y", None)) && !roll.enter(&hello("c", "y", None)));
        assert_eq!(words(&roll), [none]);
        assert!(roll.enter(&hello("b", "y", Some(2))));
        assert!(words(&roll)[0].contains("1 of 2"));
        roll.enter(&hello("b", "z", Some(2)));
        assert_eq!(roll.missing(), []);
    }

    #[test]
    fn nodes_are_told_to_stay_for_longer_than_others_may_take_to_come() {
        let pass = Pass::from(&gridmpi_bootstrap::Secret::random().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, own, soon) =
            (listener.local_addr().unwrap(), pass.clone(), Instant::now() + SHORT);
        let node = std::thread::spawn(move || {
            let mut line = line::dial(&[at], &own, soon).unwrap();
            line.send(&Purpose::Words, soon).unwrap();
            let (cluster, host) = ("a".to_owned(), "x".to_owned());
            let hello = Hello { cluster, host, of: None, addresses: Vec::new(), id: 0 };
            line.send(&Word::Hello(hello), soon).unwrap();
            let order: Order = line.receive(soon).unwrap();
            (line, order)
        });
        let clusters = vec![("a".to_owned(), Some(1))];
        let wait = Duration::from_secs(86400);
        let listeners = vec![listener];
        let gathering = Gathering { listeners, relays: None, pass, clusters, wait };
        let mut watch = || Ok(());
        let (_conductor, missing) = Conductor::gather_some(gathering, &mut watch).unwrap();
        assert!(missing.is_none());
        assert_eq!(node.join().unwrap().1, Order::Stay { for_s: 86460 });
    }
}
