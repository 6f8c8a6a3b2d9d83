//! Where relays listen, by their names. A name service that is slow, or away, keeps nobody back who knows another way: names are
//! looked up by threads of their own, and where one gets no answer what was found before counts.

use crate::{aside, lock};
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for names where there is another way. Who answers later counts the next time.
const PATIENCE: Duration = Duration::from_secs(1);
/// The system's own ways of looking up need some.
const STACK: usize = 1 << 20;

/// What is known of some names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where they listen, each once: to a relay that is asked twice the second is the first come again.
    pub(crate) known: Vec<SocketAddr>,
    /// What is wrong with each of the others.
    pub(crate) unknown: Vec<String>,
    /// Some are still looked up.
    pub(crate) is_pending: bool,
}

/// Looks names up, which are written as `host:port`; each gives one address. Waits no longer than the deadline, and for a moment only
/// where there is another way: one of these names, or `has_others`.
pub(crate) fn look_up(names: &[String], has_others: bool, deadline: Instant) -> Found {
    static BOOK: Book = Book::new();
    BOOK.look_up(names, has_others, deadline, ask)
}

/// How the system is asked.
type Ask = fn(&str) -> Result<SocketAddr, String>;

fn ask(name: &str) -> Result<SocketAddr, String> {
    let mut found = name.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "no address".to_owned())
}

/// What this process has found, and looks for.
struct Book {
    entries: Mutex<BTreeMap<String, Entry>>,
    changed: Condvar,
}

#[derive(Default)]
struct Entry {
    is_asked: bool,
    /// What was found last, at any time.
    address: Option<SocketAddr>,
    /// Why the last answer was none.
    problem: Option<String>,
}

impl Book {
    const fn new() -> Self {
        Self { entries: Mutex::new(BTreeMap::new()), changed: Condvar::new() }
    }

    fn look_up(
        &'static self,
        names: &[String],
        has_others: bool,
        deadline: Instant,
        ask: Ask,
    ) -> Found {
        names.iter().filter(|name| literal(name).is_none()).for_each(|name| self.begin(name, ask));
        let soon = deadline.min(Instant::now() + PATIENCE);
        let mut entries = lock(&self.entries);
        loop {
            let found = found(&entries, names);
            let until = if has_others || !found.known.is_empty() { soon } else { deadline };
            let left = until.saturating_duration_since(Instant::now());
            if !found.is_pending || left.is_zero() {
                return found;
            }
            let waited = self.changed.wait_timeout(entries, left);
            entries = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has a name looked up, unless that is under way.
    fn begin(&'static self, name: &str, ask: Ask) {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(name.to_owned()).or_default();
        if std::mem::replace(&mut entry.is_asked, true) {
            return;
        }
        drop(entries);
        let own = name.to_owned();
        let spawned = aside::spawn("gridmpi-names", STACK, move || {
            let answer = ask(&own);
            self.end(&own, answer);
        });
        if let Err(error) = spawned {
            self.end(name, Err(error.to_string()));
        }
    }

    fn end(&self, name: &str, answer: Result<SocketAddr, String>) {
        if let Some(entry) = lock(&self.entries).get_mut(name) {
            entry.is_asked = false;
            entry.problem = answer.as_ref().err().cloned();
            entry.address = answer.ok().or(entry.address);
        }
        self.changed.notify_all();
    }
}

/// An address, which needs no service.
fn literal(name: &str) -> Option<SocketAddr> {
    name.parse().ok()
}

fn found(entries: &BTreeMap<String, Entry>, names: &[String]) -> Found {
    let mut all = Found::default();
    for name in names {
        let entry = entries.get(name);
        let is_asked = entry.is_some_and(|entry| entry.is_asked);
        match literal(name).or_else(|| entry?.address) {
            Some(address) if all.known.contains(&address) => {}
            Some(address) => all.known.push(address),
            None => all.unknown.push(unknown(name, entry)),
        }
        all.is_pending |= is_asked;
    }
    all
}

fn unknown(name: &str, entry: Option<&Entry>) -> String {
    match entry.filter(|entry| !entry.is_asked).and_then(|entry| entry.problem.as_deref()) {
        Some(why) => format!(
            "the relay {name} is not known on this node ({why}): name it as this cluster's nodes do"
        ),
        None => format!(
            "where the relay {name} is has not been found out in time: this node's name service does not answer, or is slow; \
             check it, or give the relay's address"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn who_knows_another_way_does_not_wait_for_a_name() {
        static BOOK: Book = Book::new();
        let never: Ask = |_| loop {
            std::thread::park();
        };
        let slow = names(&["slow:1"]);
        for (names, has_others, known) in
            [(names(&["slow:1", "10.0.0.1:7"]), false, vec![at(7)]), (slow, true, Vec::new())]
        {
            let began = Instant::now();
            let found = BOOK.look_up(&names, has_others, soon(), never);
            assert!(found.is_pending && found.known == known, "{found:?}");
            assert!(found.unknown[0].contains("slow:1"), "{found:?}");
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
        let began = Instant::now();
        let found = BOOK.look_up(&names(&["10.0.0.1:7"]), false, soon(), never);
        assert!(!found.is_pending && found.known == [at(7)], "an address is no name");
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    }

    #[test]
    fn who_answers_late_counts_and_is_not_asked_twice() {
        static BOOK: Book = Book::new();
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static MAY: Mutex<()> = Mutex::new(());
        let late: Ask = |_| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            drop(lock(&MAY));
            Ok(at(1))
        };
        let held = lock(&MAY);
        for _ in 0..2 {
            let found = BOOK.look_up(&names(&["late:1"]), false, Instant::now(), late);
            assert!(found.is_pending && found.known.is_empty(), "{found:?}");
        }
        drop(held);
        let found = BOOK.look_up(&names(&["late:1"]), false, soon(), late);
        assert_eq!((found.known, found.is_pending), (vec![at(1)], false));
        assert!(ASKED.load(Ordering::Relaxed) <= 2, "once while it was under way");
    }

    #[test]
    fn what_was_found_counts_when_the_service_is_away() {
        static BOOK: Book = Book::new();
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let once: Ask = |name| match (name, ASKED.fetch_add(1, Ordering::Relaxed)) {
            ("gw:1", 0) => Ok(at(1)),
            _ => Err("away".to_owned()),
        };
        for _ in 0..2 {
            let found = BOOK.look_up(&names(&["gw:1"]), false, soon(), once);
            assert_eq!(found, Found { known: vec![at(1)], ..Found::default() });
        }
        let found = BOOK.look_up(&names(&["gw:1", "other:1"]), false, soon(), once);
        assert!(found.known == [at(1)] && found.unknown.len() == 1, "{found:?}");
        assert!(found.unknown[0].contains("other:1") && found.unknown[0].contains("away"));
    }
}
