use std::net::{TcpListener, TcpStream};

use bytes::Bytes;
use gridmpi_buffer::{RecvBuffer, SendBuffer};
use gridmpi_engine::{Config, Mode, Source, TagMatch};
use gridmpi_rate::{Grant, Network};
use gridmpi_wire::{ContextId, JobKey, Rank, Strand};

use super::*;
use crate::carrier::Carrier;
use crate::link::YOUNG;
use crate::links::Met;
use crate::pace::tests::all_of;
use crate::{Bound, Limits, Listen, Net, NetConfig, Online, Way, bind};

pub(crate) const FAR: ProcId = ProcId(1);

pub(crate) fn config(me: ProcId) -> NetConfig {
    NetConfig {
        me,
        job: [7; 16],
        key: JobKey::new([9; 32]),
        engine: Config::new(me),
        peers: vec![Vec::new(); 2],
        security: None,
        relays: None,
        limits: Limits::default(),
        pacing: Pacing::default(),
        warn: |_| {},
        tells_of_absence: None,
        lost: None,
        forked: None,
    }
}

/// A process of one cluster that sends to another at so many bits per second.
pub(crate) fn state(rate: f64) -> State {
    state_among(vec![0, 1], rate)
}

/// The first of processes of these clusters.
pub(crate) fn state_among(clusters: Vec<u16>, rate: f64) -> State {
    let rates = vec![None, Rate::from_bits_per_second(rate)];
    state_paced(Pacing { clusters, rates, ..Pacing::default() })
}

fn state_paced(pacing: Pacing) -> State {
    let config = NetConfig { pacing, ..config(ProcId(0)) };
    let listen = Listen { interface: Some("127.0.0.1".into()), port: 0 };
    State::new(bind(&listen).unwrap(), config).unwrap()
}

/// Has a connection to a peer, whose end is this.
pub(crate) fn meet(state: &mut State, (peer, strand): (ProcId, Strand)) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    state.endpoint.connected(peer, strand, 1).unwrap();
    state.establish((peer, strand), Carrier::bare(near.into()), Met::default());
    listener.accept().unwrap().0
}

/// The first of two processes of a cluster, the other of which has the broker, with connections to that and to one of another cluster; much
/// waits for the latter.
fn with_broker() -> (State, [TcpStream; 2], [ProcId; 2]) {
    let (mut state, ends, peers) = with_broker_among(vec![0, 0, 1]);
    let much = SendBuffer::from_bytes(Bytes::from(vec![0; 1 << 20]));
    state.endpoint.send(peers[1], ContextId::WORLD, Rank(0), 1, Mode::Standard, much);
    (state, ends, peers)
}

/// The first of processes of these clusters, the second of which has the broker, and the third is of the other cluster.
fn with_broker_among(clusters: Vec<u16>) -> (State, [TcpStream; 2], [ProcId; 2]) {
    with_broker_over(clusters, 8e6, None)
}

/// The same; each may always have so many bits per second of what the link carries, if that is known.
fn with_broker_over(
    clusters: Vec<u16>,
    least: f64,
    link: Option<f64>,
) -> (State, [TcpStream; 2], [ProcId; 2]) {
    let (broker, far) = (ProcId(1), ProcId(2));
    let mut network = Network::new();
    let ids = [(); 2].map(|()| network.add_cluster());
    if let Some(link) = link.and_then(Rate::from_bits_per_second) {
        network.add_link(link, &[(ids[0], ids[1])]);
    }
    let interface = Rate::from_bits_per_second(50e6).unwrap();
    let node = |&cluster: &u16| network.add_node(ids[usize::from(cluster)], interface);
    let nodes: Vec<_> = clusters.iter().map(node).collect();
    let names = ["a", "b"].map(str::to_owned).to_vec();
    let online = Online { network, nodes, brokers: vec![broker, far], names, warn: |_| {} };
    let rates = vec![None, Rate::from_bits_per_second(least)];
    let online = Some(online);
    let mut state = state_paced(Pacing { clusters, rates, online, ..Pacing::default() });
    let ends = [broker, far].map(|peer| meet(&mut state, (peer, Strand::FIRST)));
    state.flush();
    (state, ends, [broker, far])
}

pub(crate) fn link(state: &mut State, peer: ProcId) -> &mut Link {
    let (_, token) = state.peers[&peer].links[0];
    let Some(Socket::Link(link)) = state.sockets.get(token) else { panic!("it is lost") };
    link
}

fn written(state: &mut State, peer: ProcId) -> u64 {
    link(state, peer).written
}

#[test]
fn where_the_program_names_a_rate_nothing_goes_by_parts() {
    let (mut state, _ends, [_, far]) = with_broker();
    let ask = Ask { is_untold: true, ..all_of(6000) };
    let now = Instant::now();
    for (held, is_part) in [(None, true), (Rate::from_bits_per_second(8e6), false)] {
        state.hold(held);
        let pacer = &mut state.paces.get(1).unwrap().pacer;
        assert!(matches!(pacer.ask(far, ask, now), Turn::Now(_)));
        assert_eq!(pacer.is_unspaced(), is_part, "{held:?}");
    }
}

#[test]
fn a_rate_that_is_put_counts_for_what_the_kernel_has_already() {
    let rates = vec![None; 2];
    let mut state = state_paced(Pacing { clusters: vec![0, 1, 1], rates, ..Pacing::default() });
    let idle = ProcId(2);
    let _ends = [FAR, idle].map(|peer| meet(&mut state, (peer, Strand::FIRST)));
    let much = SendBuffer::from_bytes(Bytes::from(vec![0; 16 << 20]));
    state.endpoint.send(FAR, ContextId::WORLD, Rank(0), 1, Mode::Standard, much);
    state.transmit(FAR);
    assert!(state.unsent_for(FAR) > 0, "nobody reads it");
    let told = |state: &mut State, peer| link(state, peer).paced_to;
    for (rate, least) in [(8e6, 900_000), (80e6, 9_000_000), (4e6, 450_000)] {
        state.hold(Rate::from_bits_per_second(rate));
        let most = (rate / 8.0) as u64;
        assert!(told(&mut state, FAR).is_some_and(|rate| (least..most).contains(&rate)));
    }
    assert_eq!(told(&mut state, idle), None, "the kernel has nothing of it");
}

#[test]
fn a_claim_leaves_before_what_it_is_for() {
    let (mut state, _ends, peers) = with_broker();
    let before = peers.map(|peer| written(&mut state, peer));
    state.claim(1, peers[1], |_| true);
    let after = peers.map(|peer| written(&mut state, peer));
    assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
}

#[test]
fn what_goes_whatever_is_granted_leaves_before_its_claim_and_the_kernel_is_told_of_no_rate() {
    let (mut state, _ends, peers) = with_broker_over(vec![0, 0, 1], 20e6, Some(64e6));
    let [broker, far] = peers;
    link(&mut state, far).written = YOUNG;
    let before = written(&mut state, broker);
    let send = SendBuffer::from_bytes(Bytes::from(vec![0; 8000]));
    state.endpoint.send(far, ContextId::WORLD, Rank(0), 1, Mode::Standard, send);
    state.transmit(far);
    assert!(state.has_claimed(far) && written(&mut state, far) > YOUNG + 8000);
    assert_eq!(written(&mut state, broker), before);
    state.flush();
    assert!(written(&mut state, broker) > before);
    assert_eq!(link(&mut state, far).paced_to, None);
}

#[test]
fn what_follows_while_the_last_leaves_is_claimed_anew_unless_that_is_young() {
    let (mut state, _ends, [broker, far]) = with_broker();
    let rate = Rate::from_bits_per_second(9e6).unwrap();
    let mut follow = |settled: Option<bool>| {
        let grant = |is_settled| Grant { rate, node: rate, is_settled, is_quiet: false };
        let claims = &mut state.paces.get(1).unwrap().claims;
        if let Some(settled) = settled {
            claims.grant(grant(settled), Instant::now());
        }
        state.end_when_gone(1, far);
        let before = written(&mut state, broker);
        state.claim(1, far, |_| true);
        assert!(state.has_claimed(far) && !state.is_leaving(1, far));
        written(&mut state, broker) > before
    };
    assert!(follow(None), "the first of all");
    assert!(!follow(None) && !follow(Some(false)), "nothing new is said of the young");
    assert!(follow(Some(true)), "it may have what others begin with");
    assert!(!follow(None), "it is young again");
}

#[test]
fn what_the_window_has_held_back_leaves_at_a_lower_rate_too() {
    let (mut state, _ends, [_, far]) = with_broker();
    state.claim(1, far, |_| true);
    let paced = state.paces.get(1).unwrap();
    let mut now = Instant::now();
    let mut grant = |paced: &mut Paced, rate| {
        now += Duration::from_secs(1);
        let rate = Rate::from_bits_per_second(rate).unwrap();
        paced.claims.grant(Grant { rate, node: rate, is_settled: true, is_quiet: false }, now);
        // As with the broker's own, which hears of it at once.
        paced.claims.debt();
        let repaced = paced.follow_claims(now).map(|it| (it.peer, it.is_faster));
        let Turn::Now(most) = paced.pacer.ask(far, all_of(1 << 20), now) else {
            panic!("it waits")
        };
        paced.pacer.wrote(far, most, now);
        repaced
    };
    assert_eq!(grant(paced, 40e6), None, "what has left is no matter");
    // As it is reckoned all has left long ago.
    assert_eq!(grant(paced, 20e6), Some((far, false)));
    assert_eq!(grant(paced, 40e6), None, "it is told with what it is handed next");
}

#[test]
fn short_messages_are_claimed_where_many_of_them_wait() {
    let (mut state, _ends, [_, far]) = with_broker_among(vec![0, 0, 1, 1, 1]);
    let peers = [2, 3, 4].map(ProcId);
    let _far: Vec<_> =
        peers[1..].iter().map(|&peer| meet(&mut state, (peer, Strand::FIRST))).collect();
    state.flush();
    let mut send = |peer| {
        let short = SendBuffer::from_bytes(Bytes::from(vec![0; 4000]));
        state.endpoint.send(peer, ContextId::WORLD, Rank(0), 1, Mode::Standard, short);
        state.transmit(peer);
        state.has_claimed(peer)
    };
    assert!(!send(far), "it leaves at once");
    assert!(!send(peers[1]), "it waits alone");
    assert!(send(peers[2]), "it is one of several");
}

#[test]
fn what_the_window_of_a_short_path_lets_out_at_once_is_no_end_of_a_turn() {
    let mut state = state_among(vec![0, 1, 1], 4e9);
    let other = ProcId(2);
    let _end = meet(&mut state, (other, Strand::FIRST));
    let much = SendBuffer::from_bytes(Bytes::from(vec![0; 8 << 20]));
    state.endpoint.send(other, ContextId::WORLD, Rank(0), 1, Mode::Standard, much);
    wait_on(&mut state);
    let (_, token) = state.peers[&other].links[0];
    let Some(Socket::Link(mut link)) = state.sockets.take(token) else { panic!("it is lost") };
    link.written = YOUNG;
    let room = outlook(&link.carrier.fd).unwrap().room;
    let backlog = state.endpoint.unwritten_bytes(other);
    let most = loop {
        let now = Instant::now();
        if let Some(most) = state.ask_turn(1, &mut link, backlog, now).unwrap() {
            break most;
        }
        while state.paces.next(1, now) == Some(FAR) {
            wait_on(&mut state);
        }
    };
    assert!(link.is_short() && state.paces.get(1).unwrap().pacer.has_waiting());
    assert!(most > 2 * room, "{most} where its window lets out {room}");
}

/// It has had a turn and waits for the next one.
pub(crate) fn wait_on(state: &mut State) {
    let now = Instant::now();
    let pacer = &mut state.paces.get(1).unwrap().pacer;
    let ask = all_of(1 << 30);
    while let Turn::Now(most) = pacer.ask(FAR, ask, now) {
        pacer.wrote(FAR, most, now);
    }
}

/// Three processes' networks, of which the first sends to the others at so many bits per second.
fn nets(rate: f64) -> Vec<Net> {
    let listen = Listen { interface: Some("127.0.0.1".into()), port: 0 };
    let bound: Vec<_> = (0..3).map(|_| bind(&listen).unwrap()).collect();
    let way = |bound: &Bound| vec![Way::Direct(bound.addresses().to_vec())];
    let peers: Vec<_> = bound.iter().map(way).collect();
    let start = |(me, bound)| {
        let rates = vec![None, Rate::from_bits_per_second(rate).filter(|_| me == 0)];
        let pacing = Pacing { clusters: vec![0, 1, 1], rates, ..Pacing::default() };
        Net::start(bound, NetConfig { peers: peers.clone(), pacing, ..config(ProcId(me)) })
    };
    (0..).zip(bound).map(|it| start(it).unwrap()).collect()
}

#[test]
fn an_acknowledgement_may_wait_for_the_turns_of_all() {
    let cycle = |rate| {
        let clusters = [vec![0; 256], vec![1; 256]].concat();
        let rates = vec![None, Rate::from_bits_per_second(rate)];
        let pacing = Pacing { clusters, rates, ..Pacing::default() };
        Paces::new(&pacing, ProcId(0)).cycle(ProcId(256)).as_secs_f64()
    };
    // Turns of 5 ms, or of four segments.
    assert!((cycle(1e9) - 1.28).abs() < 1e-6, "{}", cycle(1e9));
    let least = 256.0 * 4.0 * 1538.0 * 8.0 / 1.2e6;
    assert!((cycle(1.2e6) - least).abs() < 1e-6, "{} and not {least}", cycle(1.2e6));
    assert_eq!(cycle(f64::INFINITY), 0.0, "nobody has turns");
}

#[test]
fn what_is_acknowledged_to_one_leaves_the_turn_to_the_other() {
    // What the first has of its turn leaves within minutes.
    let nets = nets(100.0);
    let buffer = |bytes| SendBuffer::from_bytes(Bytes::from(vec![0; bytes]));
    let send = |from: u32, to, bytes| {
        let (context, rank) = (ContextId::WORLD, Rank(from));
        let mut net = nets[from as usize].lock();
        net.send(ProcId(to), context, rank, 1, Mode::Standard, buffer(bytes));
    };
    let writer = || {
        let mut net = nets[0].lock();
        net.state().paces.get(1).and_then(|paced| paced.pacer.writer())
    };
    send(0, 1, 1 << 20);
    let until = Instant::now() + Duration::from_secs(60);
    let wait = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "it never was so");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait(&|| writer() == Some(FAR));
    let source = Source::Remote(Rank(2), ProcId(2));
    let into = RecvBuffer::owned(1 << 20);
    let came = nets[0].lock().receive(ContextId::WORLD, source, TagMatch::Is(1), into);
    send(2, 0, 1 << 20);
    wait(&|| nets[0].lock().take(came).is_some());
    assert_eq!(writer(), Some(FAR));
}

#[test]
fn while_somebody_waits_there_is_one_timer_and_no_turn_is_missed() {
    let mut state = state(1e6);
    wait_on(&mut state);
    state.arm_turn(1);
    // At higher and higher rates the next turn comes sooner and sooner.
    for mbits in 2..20 {
        state.hold(Rate::from_bits_per_second(f64::from(mbits) * 1e6));
    }
    let began = Instant::now();
    let (mut fired, mut turns) = (0, 0);
    while began.elapsed() < Duration::from_millis(500) {
        std::thread::sleep(Duration::from_millis(1));
        for _ in state.timers.expired(Instant::now()) {
            fired += 1;
            state.turn_due(1);
            if !state.paces.get(1).unwrap().pacer.has_waiting() {
                turns += 1;
                wait_on(&mut state);
                state.arm_turn(1);
            }
        }
    }
    // A turn takes 5 ms.
    assert!(turns > 20, "{turns}");
    // Those from the beginning, and one for each; another where one came too early.
    assert!(fired <= 20 + 2 * turns, "{fired} for {turns}");
}
