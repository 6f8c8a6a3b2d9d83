//! Processes that reach each other through relays only.

mod common;
#[path = "common/relay.rs"]
mod relay;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use gridmpi_leg::{Ask, AskStep, Asker};
use gridmpi_net::Net;
use gridmpi_wire::{Errand, JobKey, ProcId, Strand};
use relay::{Relay, TOKEN, relayed, use_relays};

fn relays() -> Vec<Relay> {
    (0..2).map(|_| Relay::new(JobKey::new(TOKEN))).collect()
}

fn exchange(nets: &[Net], seed: u64, len: usize) {
    for (from, to) in [(0u32, 1u32), (1, 0)] {
        let bytes = pattern(seed + u64::from(from), len);
        let sent = send(&nets[from as usize], from, to, 0, bytes.clone());
        let received = receive(&nets[to as usize], from, 0, len);
        assert!(finish(&nets[to as usize], received).1 == Some(bytes));
        assert_eq!(finish(&nets[from as usize], sent).0.error, None);
    }
}

#[test]
fn messages_pass_through_a_relay() {
    let relays = relays();
    let nets = relayed(&relays, |_| {});
    exchange(&nets, 1, 100_000);
    assert_eq!(relays.iter().map(Relay::circuits).sum::<usize>(), 1);
    eventually("both at both relays", || relays.iter().all(|relay| relay.registered() == 2));
    shutdown(nets);
}

#[test]
fn much_is_spread_over_all_relays() {
    let relays = relays();
    let nets = relayed(&relays, |_| {});
    let mut round = 0;
    eventually("a circuit through each relay", || {
        round += 1;
        exchange(&nets, round, 3_000_000);
        relays.iter().all(|relay| relay.circuits() > 0)
    });
    exchange(&nets, 1000, 20_000_000);
    shutdown(nets);
}

#[test]
fn whoever_begins_first_finds_the_other_when_it_comes() {
    let relays = relays();
    let bound = [loopback(), loopback()];
    let start = |me: u32, bound| {
        let mut config = config(me, vec![Vec::new(); 2]);
        use_relays(&mut config, &relays);
        Net::start(bound, config).unwrap()
    };
    let [first, second] = bound;
    let early = start(0, first);
    let sent = send(&early, 0, 1, 0, vec![5; 100]);
    finish(&early, sent);
    eventually("the early one at both relays", || {
        relays.iter().all(|relay| relay.registered() == 1)
    });
    let late = start(1, second);
    let received = receive(&late, 0, 0, 100);
    assert_eq!(finish(&late, received).1, Some(vec![5; 100]));
    shutdown(vec![early, late]);
}

#[test]
fn who_waits_is_told_for_whom_and_when_that_is_over() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let said = || SAID.lock().unwrap().clone();
    let relays = relays();
    let nets = relayed(&relays, |config| {
        config.warn = |text| SAID.lock().unwrap().push(text.to_owned());
        let is_first = config.me == ProcId(0);
        config.tells_of_absence = is_first.then_some(Duration::from_millis(500));
    });
    exchange(&nets, 1, 1000);
    // A machine that is busy may have taken so long to begin.
    eventually("what was said of the beginning is over", || said().len().is_multiple_of(2));
    SAID.lock().unwrap().clear();
    relays.iter().for_each(Relay::close);
    eventually("something is said", || !said().is_empty());
    relays.iter().for_each(Relay::reopen);
    exchange(&nets, 2, 1000);
    eventually("the end of it is said", || said().len() > 1);
    let [away, back] = said().try_into().unwrap();
    assert!(away.starts_with("rank 1: the connection was lost"), "{away}");
    assert!(away.contains("tried on for up to 59 s") && away.contains("through the relay 127."));
    assert!(back.starts_with("rank 1 is reached again, after "), "{back}");
    shutdown(nets);
}

#[test]
fn streams_go_on_when_relays_are_cut() {
    let relays = relays();
    let nets = relayed(&relays, |_| {});
    for round in 0..20 {
        exchange(&nets, round, 700_000);
        relays.iter().for_each(Relay::cut);
    }
    assert!(nets[0].stats().connections > 10);
    exchange(&nets, 100, 10);
    eventually("both at both relays", || relays.iter().all(|relay| relay.registered() == 2));
    shutdown(nets);
}

#[test]
fn who_waits_for_our_last_word_gets_it_though_the_relays_are_away_for_a_while() {
    let relays = relays();
    let nets = relayed(&relays, |_| {});
    exchange(&nets, 1, 1000);
    let end = |net: &Net| net.shutdown(std::time::Instant::now() + PATIENCE);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| end(&nets[0]));
        eventually("its last word", || nets[1].lock().peer_closed(ProcId(0)));
        relays.iter().for_each(Relay::close);
        eventually("that is seen", || nets[1].lock().carried(ProcId(0), Strand::FIRST).is_none());
        let second = scope.spawn(|| end(&nets[1]));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!first.is_finished() && !second.is_finished(), "one has given the other up");
        relays.iter().for_each(Relay::reopen);
        assert_eq!([first, second].map(|end| end.join().unwrap()), [true; 2]);
    });
    assert_eq!([0, 1].map(|at| nets[at].failure()), [None, None]);
}

#[test]
fn a_relay_that_takes_everything_and_passes_nothing_on_is_left() {
    let relays = relays();
    let hanging = Arc::new(AtomicUsize::new(usize::MAX));
    for (at, relay) in relays.iter().enumerate() {
        let hanging = Arc::clone(&hanging);
        relay.trouble(Some(Arc::new(move |_, _, bytes: &mut Vec<u8>| {
            if hanging.load(Ordering::SeqCst) == at {
                bytes.clear();
            }
        })));
    }
    let nets = relayed(&relays, |config| {
        config.limits.unanswered = Duration::from_millis(300);
        config.limits.connections = Some(1);
    });
    exchange(&nets, 1, 1000);
    // Whichever it is that they use.
    let circuits = || relays.iter().map(Relay::circuits).sum::<usize>();
    let before = circuits();
    for at in 0..2 {
        hanging.store(at, Ordering::SeqCst);
        exchange(&nets, 3, 1000);
    }
    assert!(circuits() > before);
    shutdown(nets);
}

#[test]
fn a_relay_that_is_slow_is_not_left_though_no_frame_is_whole_for_long() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    // 164 kB/s: a frame takes longer than there is.
    relays[0].trouble(Some(Arc::new(|_, _, _: &mut Vec<u8>| {
        std::thread::sleep(Duration::from_millis(100));
    })));
    let nets = relayed(&relays, |config| {
        config.limits.unanswered = Duration::from_millis(1200);
    });
    exchange(&nets, 1, 600_000);
    assert_eq!(relays[0].circuits(), 1);
    shutdown(nets);
}

#[test]
fn who_always_takes_longer_than_one_waits_is_waited_for_longer_the_next_time() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    // What the one who opened it says behind the handshake takes its time, and is lost if there is another circuit by then.
    let pieces = Mutex::new(HashMap::<u64, u32>::new());
    relays[0].trouble(Some(Arc::new(move |direction, _, bytes: &mut Vec<u8>| {
        let count = {
            let mut pieces = pieces.lock().unwrap();
            let count = pieces.entry(direction).or_default();
            *count += 1;
            *count
        };
        if direction % 2 == 0 && count == 3 {
            std::thread::sleep(Duration::from_millis(1500));
            if pieces.lock().unwrap().keys().any(|other| *other > direction + 1) {
                bytes.clear();
            }
        }
    })));
    let nets = relayed(&relays, |config| {
        config.limits.unanswered = Duration::from_millis(500);
    });
    exchange(&nets, 1, 1000);
    eventually("all is acknowledged", || {
        nets.iter().zip([1, 0]).all(|(net, to)| net.lock().is_idle(ProcId(to)))
    });
    assert!((2..6).contains(&relays[0].circuits()), "{}", relays[0].circuits());
    shutdown(nets);
}

#[test]
fn a_relay_that_calls_without_end_takes_no_places_of_others() {
    let relays = relays();
    let nets = relayed(&relays, |config| {
        config.limits.pending = 8;
        // What it takes it keeps.
        config.limits.dial_address = PATIENCE;
        config.limits.dial_total = PATIENCE;
        config.limits.connections = Some(1);
    });
    eventually("both at both relays", || relays.iter().all(|relay| relay.registered() == 2));
    let [good, bad] = &relays[..] else { panic!("two relays") };
    bad.fall_mute();
    bad.call(100);
    // Each has come as often as one of two relays may.
    eventually("they come", || bad.accepts() == 2 * 2);
    exchange(&nets, 1, 10_000);
    assert_eq!((good.circuits(), bad.accepts()), (1, 4));
    shutdown(nets);
}

#[test]
fn more_calls_than_there_are_places_are_met_one_after_another() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    let nets = nets_with(9, |config| {
        use_relays(config, &relays);
        config.limits.pending = 2;
    });
    eventually("all at the relay", || relays[0].registered() == 9);
    let of = |from: u32| pattern(u64::from(from), 100);
    let sent: Vec<_> =
        (1..9).map(|from| send(&nets[from as usize], from, 0, 0, of(from))).collect();
    for from in 1..9 {
        let received = receive(&nets[0], from, 0, 100);
        assert_eq!(finish(&nets[0], received).1, Some(of(from)));
    }
    for (net, request) in nets[1..].iter().zip(sent) {
        finish(net, request);
    }
    // Nobody had to ask again.
    assert_eq!((relays[0].circuits(), relays[0].opens()), (8, 8));
    shutdown(nets);
}

/// Somebody who knows the relay's token opens a circuit to process 0, and says nothing on it.
fn open_and_say_nothing(relay: &Relay) -> TcpStream {
    let asker = Asker { me: ProcId(5), job: JOB, token: JobKey::new(TOKEN) };
    let (mut ask, hello) = Ask::new(&asker, Errand::Open { to: ProcId(0) }, [1; 32]);
    let mut stream = TcpStream::connect(relay.address).unwrap();
    stream.write_all(&hello).unwrap();
    loop {
        let count = stream.read(ask.space()).unwrap();
        if let AskStep::Send(request) = ask.read(count, &asker).unwrap() {
            stream.write_all(&request).unwrap();
            return stream;
        }
    }
}

#[test]
fn circuits_that_say_nothing_make_room_for_those_that_wait() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    let nets = relayed(&relays, |config| {
        config.limits.pending = 8;
        // Nobody's time is over before all have waited long enough.
        config.limits.handshake = 2 * PATIENCE;
        config.limits.dial_address = PATIENCE;
        config.limits.dial_total = PATIENCE;
    });
    eventually("both at the relay", || relays[0].registered() == 2);
    let silent: Vec<_> = (0..20).map(|_| open_and_say_nothing(&relays[0])).collect();
    eventually("all places are taken", || relays[0].circuits() >= 4);
    let bytes = pattern(1, 10_000);
    let sent = send(&nets[1], 1, 0, 0, bytes.clone());
    let received = receive(&nets[0], 1, 0, bytes.len());
    assert!(finish(&nets[0], received).1 == Some(bytes));
    assert_eq!(finish(&nets[1], sent).0.error, None);
    drop(silent);
    shutdown(nets);
}

#[test]
fn one_relay_that_does_not_listen_holds_nobody_up() {
    let relays = relays();
    for at in 0..2 {
        let nets = relayed(&relays, |config| {
            config.relays.as_mut().unwrap().addresses[at] = NOBODY;
        });
        exchange(&nets, 9, 10_000);
        shutdown(nets);
    }
}

#[test]
fn a_wrong_token_is_a_failure_that_names_relay_and_remedy() {
    let relays = relays();
    let nets = relayed(&relays, |config| {
        config.relays.as_mut().unwrap().token = JobKey::new([5; 32]);
        config.limits.dial_refused = Duration::from_millis(100);
    });
    let wanted = receive(&nets[0], 1, 0, 1);
    send(&nets[0], 0, 1, 0, vec![1]);
    assert!(finish(&nets[0], wanted).0.error.is_some());
    let failure = nets[0].failure().unwrap().to_string();
    for part in ["rank 1", "relay", "token", "relay_token", &relays[0].address.to_string()] {
        assert!(failure.contains(part), "{failure}");
    }
}

#[test]
fn nobody_behind_the_relay_is_a_failure_within_the_time_set() {
    let relays = relays();
    let nets = nets_with(1, |config| {
        config.peers.push(Vec::new());
        use_relays(config, &relays);
        config.limits.dial_total = Duration::from_secs(1);
    });
    let wanted = receive(&nets[0], 1, 0, 1);
    send(&nets[0], 0, 1, 0, vec![1]);
    assert!(finish(&nets[0], wanted).0.error.is_some());
    let failure = nets[0].failure().unwrap().to_string();
    assert!(failure.contains("no relay that it reaches knows the process"), "{failure}");
}

#[test]
fn a_relay_that_comes_later_carries_on_alone() {
    let (first, second) = (Relay::new(JobKey::new(TOKEN)), Relay::new(JobKey::new(TOKEN)));
    let only = [first];
    let nets = relayed(&only, |_| {});
    exchange(&nets, 1, 100_000);
    assert_eq!(nets.iter().map(|net| net.stats().connections).max(), Some(1));
    // Named as well under the address that they know, and twice.
    for address in [only[0].address, second.address, second.address] {
        only[0].tell(address);
    }
    let mut round = 10;
    eventually("much goes over both", || {
        round += 1;
        exchange(&nets, round, 3_000_000);
        second.circuits() > 0
    });
    eventually("both at both", || second.registered() == 2);
    let [first] = only;
    first.close();
    for round in 100..105 {
        exchange(&nets, round, 3_000_000);
    }
    assert!(nets.iter().all(|net| net.failure().is_none()));
    shutdown(nets);
}

#[test]
fn who_looks_for_a_peer_in_vain_finds_it_through_a_relay_that_comes() {
    let (first, second) = (Relay::new(JobKey::new(TOKEN)), Relay::new(JobKey::new(TOKEN)));
    let bound = [loopback(), loopback()];
    let relays = [first, second];
    // Each is at another relay only.
    let start = |(me, bound): (u32, _)| {
        let mut config = config(me, vec![Vec::new(); 2]);
        use_relays(&mut config, &relays[..1]);
        config.relays.as_mut().unwrap().addresses = vec![relays[me as usize].address];
        Net::start(bound, config).unwrap()
    };
    let nets: Vec<Net> = (0..2).zip(bound).map(start).collect();
    let sent = send(&nets[0], 0, 1, 0, vec![5; 100]);
    eventually("each at its relay", || relays.iter().all(|relay| relay.registered() == 1));
    relays[0].tell(relays[1].address);
    let received = receive(&nets[1], 0, 0, 100);
    assert_eq!(finish(&nets[1], received).1, Some(vec![5; 100]));
    finish(&nets[0], sent);
    assert_eq!((relays[0].circuits(), relays[1].circuits()), (0, 1));
    shutdown(nets);
}

#[test]
fn what_is_no_relay_of_ours_is_no_way_however_often_it_is_told() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    let stranger = Relay::new(JobKey::new([77; 32]));
    // Takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let nets = relayed(&relays, |_| {});
    eventually("both are registered", || relays[0].registered() == 2);
    let silent_at = silent.local_addr().unwrap();
    for address in [stranger.address, NOBODY, silent_at].repeat(100) {
        relays[0].tell(address);
    }
    let mut round = 0;
    let mut held = Vec::new();
    eventually("both look for it there", || {
        round += 1;
        exchange(&nets, round, 3_000_000);
        held.extend(silent.accept().ok());
        held.len() == 2
    });
    let since = std::time::Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        round += 1;
        exchange(&nets, round, 3_000_000);
        held.extend(silent.accept().ok());
    }
    assert_eq!(held.len(), 2, "one connection of each at a time");
    assert_eq!((stranger.registered(), stranger.circuits()), (0, 0));
    assert_eq!(nets.iter().map(|net| net.stats().connections).max(), Some(1), "one way, as before");
    shutdown(nets);
}

#[test]
fn more_relays_than_there_may_be_are_not_looked_for() {
    let relays = [Relay::new(JobKey::new(TOKEN))];
    let others: Vec<Relay> = (0..18).map(|_| Relay::new(JobKey::new(TOKEN))).collect();
    let nets = relayed(&relays, |_| {});
    others.iter().for_each(|other| relays[0].tell(other.address));
    let at = || others.iter().filter(|other| other.registered() == 2).count();
    eventually("both at sixteen of them", || at() == 16);
    exchange(&nets, 1, 3_000_000);
    assert!(others[16..].iter().all(|other| other.registered() == 0));
    // One that they were told of tells of more.
    others[0].tell(others[17].address);
    exchange(&nets, 2, 3_000_000);
    assert_eq!(others[17].registered(), 0);
    shutdown(nets);
}

#[test]
fn a_job_that_will_have_no_other_relays_has_none() {
    let (relays, other) = ([Relay::new(JobKey::new(TOKEN))], Relay::new(JobKey::new(TOKEN)));
    let nets = relayed(&relays, |config| {
        // One of the two may.
        config.relays.as_mut().unwrap().takes_more = config.me.0 == 1;
    });
    relays[0].tell(other.address);
    eventually("the one is there", || other.registered() == 1);
    // What follows a notice is met after it.
    relays[0].cut();
    exchange(&nets, 1, 3_000_000);
    eventually("both are back", || relays[0].registered() == 2);
    exchange(&nets, 2, 3_000_000);
    assert_eq!(other.registered(), 1);
    shutdown(nets);
}
