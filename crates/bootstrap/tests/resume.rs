//! Connections with the coordinator that break, wherever and as often as they do: nothing said is lost, and nothing heard twice.

mod common;

use common::{Job, LOCAL, job, job_on, registration, request, soon};
use gridmpi_bootstrap::{
    Event, JobEnv, JoinControl, JoinOrder, Listening, NetworkInfo, Parting, abort, join, register,
};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Where a connection is cut: after so many bytes of one direction.
#[derive(Clone, Copy, Debug)]
struct Cut {
    to_coordinator: bool,
    after: usize,
    /// What was sent last may be lost.
    resets: bool,
}

/// A way to the coordinator whose first connections are cut, one cut each.
struct Proxy {
    address: SocketAddr,
    inside: Arc<Inside>,
}

struct Inside {
    target: SocketAddr,
    cuts: Mutex<VecDeque<Cut>>,
    /// Cuts that were made.
    made: AtomicUsize,
    standing: Mutex<Vec<Weak<Carried>>>,
}

/// A connection and its continuation. Both are closed when nobody uses them any more.
struct Carried {
    near: TcpStream,
    far: TcpStream,
    is_cut: AtomicBool,
}

impl Proxy {
    fn new(target: SocketAddr, cuts: impl IntoIterator<Item = Cut>) -> Self {
        let listener = TcpListener::bind((LOCAL, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Mutex::new(cuts.into_iter().collect());
        let inside = Inside { target, cuts, made: AtomicUsize::new(0), standing: Mutex::default() };
        let inside = Arc::new(inside);
        let proxy = Self { address, inside: Arc::clone(&inside) };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                inside.carry(stream.unwrap());
            }
        });
        proxy
    }

    fn env(&self, job: &Job, cluster: &str) -> JobEnv {
        JobEnv { coordinators: vec![self.address], ..job.env(cluster) }
    }

    fn made(&self) -> usize {
        self.inside.made.load(Ordering::Relaxed)
    }

    /// Breaks every connection off now.
    fn break_off(&self) {
        let standing = self.inside.standing.lock().unwrap();
        standing.iter().filter_map(Weak::upgrade).for_each(|carried| carried.cut(true));
    }
}

impl Inside {
    fn carry(self: &Arc<Self>, near: TcpStream) {
        let Ok(far) = TcpStream::connect(self.target) else { return };
        let cut = self.cuts.lock().unwrap().pop_front();
        let carried = Arc::new(Carried { near, far, is_cut: AtomicBool::new(false) });
        self.standing.lock().unwrap().push(Arc::downgrade(&carried));
        for to_coordinator in [true, false] {
            let (carried, inside) = (Arc::clone(&carried), Arc::clone(self));
            let cut = cut.filter(|cut| cut.to_coordinator == to_coordinator);
            std::thread::spawn(move || {
                if carried.copy(to_coordinator, cut) {
                    inside.made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
}

impl Carried {
    /// Carries one direction, until its end or the cut. Whether it was cut.
    fn copy(&self, to_coordinator: bool, cut: Option<Cut>) -> bool {
        let both = (&self.near, &self.far);
        let (mut from, mut to) = if to_coordinator { both } else { (both.1, both.0) };
        let mut left = cut.map_or(usize::MAX, |cut| cut.after);
        let mut bytes = [0; 4096];
        while left > 0 {
            let most = left.min(bytes.len());
            let Ok(count @ 1..) = from.read(&mut bytes[..most]) else {
                if !self.is_cut.load(Ordering::Acquire) {
                    let _ = to.shutdown(Shutdown::Write);
                }
                return false;
            };
            if to.write_all(&bytes[..count]).is_err() {
                return false;
            }
            left -= count;
        }
        self.cut(cut.is_some_and(|cut| cut.resets));
        true
    }

    fn cut(&self, resets: bool) {
        self.is_cut.store(true, Ordering::Release);
        for stream in [&self.near, &self.far] {
            if resets {
                // Wakes who reads it; what goes out when it is closed then is a reset.
                let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
                let _ = stream.shutdown(Shutdown::Read);
            } else {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// A cluster's whole life; checks that everything came once and in order.
fn live_as_rank(cuts: impl IntoIterator<Item = Cut>) -> usize {
    let job = job(&[("a", None)]);
    let proxy = Proxy::new(job.coordinator.address(), cuts);
    let (table, control) = register(&proxy.env(&job, "a"), registration("a", 2), soon()).unwrap();
    assert_eq!(table.size(), 2);
    control.suspect("first");
    control.suspect("second");
    job.coordinator.end(3, "over");
    control.finalized();
    let mut seen = Vec::new();
    while !seen.ends_with(&["finalized".to_owned()]) {
        let left = soon().saturating_duration_since(Instant::now());
        match job.events.recv_timeout(left).expect("no event") {
            Event::Registered(_) => seen.push("registered".to_owned()),
            Event::Complete(_) => seen.push("complete".to_owned()),
            Event::Suspected { reason, .. } => seen.push(reason),
            Event::Finalized(_) => seen.push("finalized".to_owned()),
            Event::Refused { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
    assert_eq!(seen, ["registered", "complete", "first", "second", "finalized"]);
    proxy.made()
}

/// The same for a joined launcher.
fn live_as_launcher(cuts: impl IntoIterator<Item = Cut>) -> usize {
    let job = job(&[("a+", None)]);
    let proxy = Proxy::new(job.coordinator.address(), cuts);
    let (sender, orders) = channel();
    let (terms, control): (_, JoinControl) = join(
        &[proxy.address],
        None,
        &job.secret,
        request("a"),
        Listening::Now,
        soon(),
        move |order| {
            drop(sender.send(order));
        },
    )
    .unwrap();
    assert_eq!(terms.wait_s, 30);
    (1..=5).for_each(|number| job.coordinator.signal(0, number));
    job.coordinator.end(4, "over");
    let mut signals = Vec::new();
    let end = loop {
        match orders.recv_timeout(Duration::from_secs(30)).expect("no order") {
            JoinOrder::Signal(number) => signals.push(number),
            JoinOrder::Away(_) | JoinOrder::Back => {}
            other => break other,
        }
    };
    assert_eq!(signals, [1, 2, 3, 4, 5]);
    assert_eq!(end, JoinOrder::Ended { code: 4, reason: "over".to_owned() });
    control.exited(9);
    let events: Vec<_> = job.events.try_iter().collect();
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Joined(..))), 1);
    assert_eq!(count(|event| matches!(event, Event::JoinExited(_, 9))), 1);
    proxy.made()
}

/// Has every case run, several at a time. How many cuts were made.
fn all<C: Copy + Send + std::fmt::Debug>(cases: Vec<C>, run: impl Fn(C) -> usize + Sync) -> usize {
    let (cases, made) = (Mutex::new(cases), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(case) = { cases.lock().unwrap().pop() } {
                    let outcome =
                        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(case)));
                    made.fetch_add(
                        outcome.unwrap_or_else(|_| panic!("{case:?}")),
                        Ordering::Relaxed,
                    );
                }
            });
        }
    });
    made.into_inner()
}

/// Every byte of a direction after which a connection can be cut, as far as there are so many.
fn everywhere(most: usize) -> Vec<Cut> {
    let at = |after| {
        [true, false].map(|to_coordinator| Cut { to_coordinator, after, resets: after % 2 == 0 })
    };
    (1..most).flat_map(at).collect()
}

#[test]
fn a_cut_after_any_byte_loses_and_doubles_nothing_of_a_cluster() {
    let made = all(everywhere(1300), |cut| live_as_rank([cut]));
    assert!(made > 1300, "only {made} cuts were made");
}

#[test]
fn a_cut_after_any_byte_loses_and_doubles_nothing_of_a_launcher() {
    let made = all(everywhere(900), |cut| live_as_launcher([cut]));
    assert!(made > 900, "only {made} cuts were made");
}

/// A small generator, so that a seed says all (Steele, Lea and Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn many_cuts_lose_and_double_nothing() {
    let cuts = |seed: u64| {
        let mut state = seed;
        (0..5).map(move |_| {
            let drawn = next(&mut state);
            let (to_coordinator, resets) = (drawn & 1 == 0, drawn & 2 == 0);
            Cut { to_coordinator, resets, after: (drawn >> 8) as usize % 1000 + 1 }
        })
    };
    let made =
        all((0..64).collect(), |seed| live_as_rank(cuts(seed)) + live_as_launcher(cuts(seed)));
    assert!(made > 64, "only {made} cuts were made");
}

#[test]
fn breaks_and_ends_are_told_apart() {
    let job = job(&[("a", None)]);
    let proxy = Proxy::new(job.coordinator.address(), []);
    let (_, control) = register(&proxy.env(&job, "a"), registration("a", 1), soon()).unwrap();
    let away = || {
        job.expect(|event| match event {
            Event::Away(who, parting) => Some((who.cluster, *parting)),
            _ => None,
        })
    };
    proxy.break_off();
    assert_eq!(away(), (0, Parting::Broken));
    job.expect(|event| matches!(event, Event::Back(_)).then_some(()));
    drop(control);
    assert_eq!(away(), (0, Parting::Closed));
}

#[test]
fn a_word_of_any_rank_is_said_again() {
    for after in (1..600).step_by(7) {
        let job = job(&[("a", None)]);
        let cut = Cut { to_coordinator: after % 2 == 0, after, resets: true };
        let proxy = Proxy::new(job.coordinator.address(), [cut]);
        abort(&proxy.env(&job, "a"), 5, "why").unwrap();
        job.expect(|event| matches!(event, Event::Aborted { code: 5, .. }).then_some(()));
    }
}

#[test]
fn a_way_that_stays_closed_ends_the_session_in_time() {
    let network = NetworkInfo { reconnect_s: Some(2), ..NetworkInfo::default() };
    let job = job_on(&[("a", None)], network);
    let proxy = Proxy::new(job.coordinator.address(), []);
    let (_, control) = register(&proxy.env(&job, "a"), registration("a", 1), soon()).unwrap();
    // It takes connections, and nothing comes of them.
    let nothing = Cut { to_coordinator: true, after: 1, resets: false };
    proxy.inside.cuts.lock().unwrap().extend([nothing; 100]);
    proxy.break_off();
    let began = Instant::now();
    // Whoever waits for an answer is let go when it ends.
    control.finalized();
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(12)).contains(&took), "{took:?}");
}
