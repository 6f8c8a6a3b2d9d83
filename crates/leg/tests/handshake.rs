//! Both sides against each other, whatever the pieces that bytes come in; and against what they must refuse.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use gridmpi_leg::{Ask, AskStep, Asker, Host, HostStep, LegError, Request};
use gridmpi_wire::{
    CircuitId, Errand, JobKey, LegChallenge, LegHello, LegNotice, LegRequest, LegVerdict, ProcId,
    RelayAddress, WireError,
};
use proptest::prelude::*;

fn asker(token: u8) -> Asker {
    Asker { me: ProcId(7), job: [3; 16], token: JobKey::new([token; 32]) }
}

/// Feeds `bytes` in pieces of at most `piece` to whoever reads by `space` and `read`; the last step.
fn feed<S>(bytes: &[u8], piece: usize, mut step: impl FnMut(&[u8]) -> (usize, S)) -> S {
    let (mut at, mut last) = (0, None);
    while at < bytes.len() {
        let (taken, next) = step(&bytes[at..bytes.len().min(at + piece)]);
        at += taken;
        last = Some(next);
    }
    last.expect("there was something to feed")
}

fn host_reads(
    host: &mut Host,
    bytes: &[u8],
    piece: usize,
    known: u8,
) -> Result<HostStep, LegError> {
    let token = JobKey::new([known; 32]);
    feed(bytes, piece, |some| {
        let space = host.space();
        let count = space.len().min(some.len());
        space[..count].copy_from_slice(&some[..count]);
        let find = |id: &_| (*id == token.token_id()).then(|| token.clone());
        (count, host.read(count, find))
    })
}

fn ask_reads(
    ask: &mut Ask,
    bytes: &[u8],
    piece: usize,
    asker: &Asker,
) -> Result<AskStep, LegError> {
    feed(bytes, piece, |some| {
        let space = ask.space();
        let count = space.len().min(some.len());
        space[..count].copy_from_slice(&some[..count]);
        (count, ask.read(count, asker))
    })
}

/// Both up to the request.
fn asked(errand: Errand, piece: usize) -> (Ask, Box<Request>) {
    let asker = asker(1);
    let (mut ask, hello) = Ask::new(&asker, errand, [1; 32]);
    let mut host = Host::new([2; 32]);
    let Ok(HostStep::Send(challenge)) = host_reads(&mut host, &hello, piece, 1) else { panic!() };
    let Ok(AskStep::Send(request)) = ask_reads(&mut ask, &challenge, piece, &asker) else {
        panic!()
    };
    let Ok(HostStep::Asked(request)) = host_reads(&mut host, &request, piece, 1) else { panic!() };
    (ask, request)
}

fn errand() -> impl Strategy<Value = Errand> {
    prop_oneof![
        (0..=7u32, 8..100u32)
            .prop_map(|(first, count)| Errand::Register { first: ProcId(first), count }),
        any::<u32>()
            .prop_filter("not itself", |to| *to != 7)
            .prop_map(|to| Errand::Open { to: ProcId(to) }),
        any::<u64>().prop_map(|circuit| Errand::Accept { circuit: CircuitId(circuit) }),
    ]
}

proptest! {
    #[test]
    fn a_request_comes_about_in_whatever_pieces(errand in errand(), piece in 1..200usize) {
        let (mut ask, request) = asked(errand, piece);
        prop_assert_eq!(request.what().errand, errand);
        prop_assert_eq!((request.what().from, request.what().job), (ProcId(7), [3; 16]));
        let answer = request.answer(LegVerdict::Accepted);
        prop_assert!(matches!(ask_reads(&mut ask, &answer, piece, &asker(1)), Ok(AskStep::Done)));
    }

    #[test]
    fn a_changed_byte_is_refused(errand in errand(), at in 0..LegRequest::LEN, by in 1..=255u8) {
        let asker = asker(1);
        let (mut ask, hello) = Ask::new(&asker, errand, [1; 32]);
        let mut host = Host::new([2; 32]);
        let Ok(HostStep::Send(challenge)) = host_reads(&mut host, &hello, 999, 1) else { panic!() };
        let Ok(AskStep::Send(mut request)) = ask_reads(&mut ask, &challenge, 999, &asker) else { panic!() };
        request[at] ^= by;
        prop_assert!(host_reads(&mut host, &request, 999, 1).is_err());
    }

    #[test]
    fn no_bytes_make_either_side_panic(bytes in prop::collection::vec(any::<u8>(), 1..300), piece in 1..300usize) {
        let mut host = Host::new([2; 32]);
        let _ = host_reads(&mut host, &bytes, piece, 1);
        let (mut ask, _) = Ask::new(&asker(1), Errand::Open { to: ProcId(1) }, [1; 32]);
        let _ = ask_reads(&mut ask, &bytes, piece, &asker(1));
    }
}

#[test]
fn refusals_name_their_reason() {
    let (mut ask, request) = asked(Errand::Open { to: ProcId(9) }, 999);
    let answer = request.answer(LegVerdict::NoRoute);
    let refused = ask_reads(&mut ask, &answer, 999, &asker(1));
    assert_eq!(refused.err(), Some(LegError::Refused(LegVerdict::NoRoute)));
}

#[test]
fn an_unknown_token_is_said_and_a_wrong_one_is_not_believed() {
    let (mut ask, hello) = Ask::new(&asker(1), Errand::Open { to: ProcId(9) }, [1; 32]);
    let Ok(HostStep::Refuse(challenge, verdict)) =
        host_reads(&mut Host::new([2; 32]), &hello, 999, 5)
    else {
        panic!()
    };
    assert_eq!(verdict, LegVerdict::UnknownToken);
    let refused = ask_reads(&mut ask, &challenge, 999, &asker(1));
    assert_eq!(refused.err(), Some(LegError::Refused(LegVerdict::UnknownToken)));

    // One who pretends to know it cannot sign.
    let (mut ask, hello) = Ask::new(&asker(1), Errand::Open { to: ProcId(9) }, [1; 32]);
    let hello = LegHello::decode(&hello).unwrap();
    let forged = LegChallenge {
        magic: gridmpi_wire::LEG_MAGIC,
        version: 1,
        verdict: LegVerdict::Accepted,
        nonce: [9; 32],
        mac: [0; 32],
    };
    let forged = forged.signed(&JobKey::new([5; 32]), &hello);
    let refused = ask_reads(&mut ask, &forged.encode(), 999, &asker(1));
    assert_eq!(refused.err(), Some(LegError::NotGenuine));
}

#[test]
fn a_recorded_request_does_not_pass_again() {
    let asker = asker(1);
    let (mut ask, hello) = Ask::new(&asker, Errand::Open { to: ProcId(9) }, [1; 32]);
    let mut host = Host::new([2; 32]);
    let Ok(HostStep::Send(challenge)) = host_reads(&mut host, &hello, 999, 1) else { panic!() };
    let Ok(AskStep::Send(request)) = ask_reads(&mut ask, &challenge, 999, &asker) else { panic!() };
    let mut other = Host::new([4; 32]);
    assert!(matches!(host_reads(&mut other, &hello, 999, 1), Ok(HostStep::Send(_))));
    assert_eq!(host_reads(&mut other, &request, 999, 1).err(), Some(LegError::NotGenuine));
}

#[test]
fn impossible_errands_are_refused() {
    let outside = Errand::Register { first: ProcId(8), count: 4 };
    let itself = Errand::Open { to: ProcId(7) };
    for (errand, field) in [(outside, "count"), (itself, "to")] {
        let message = LegRequest { errand, job: [3; 16], from: ProcId(7), mac: [0; 32] };
        assert_eq!(LegRequest::decode(&message.encode()), Err(WireError::Field(field)));
    }
}

#[test]
fn a_stray_client_is_known_at_its_first_byte() {
    let refused = host_reads(&mut Host::new([2; 32]), b"G", 1, 1);
    assert_eq!(refused.err(), Some(LegError::Wire(WireError::Magic)));
}

#[test]
fn notices_come_back_as_they_went() {
    let beside = |address: &str| RelayAddress::new(address.parse().unwrap()).map(LegNotice::Beside);
    let notices = [
        LegNotice::Called { from: ProcId(3), circuit: CircuitId(u64::MAX) },
        beside("10.9.255.2:7118").unwrap(),
        beside("[fd00::7]:65535").unwrap(),
    ];
    for notice in notices {
        assert_eq!(LegNotice::decode(&notice.encode()), Ok(notice));
    }
    assert_eq!(beside("[::ffff:10.9.255.2]:7118"), Some(notices[1]));
}

#[test]
fn a_notice_names_no_relay_that_cannot_be() {
    let cannot = [
        "0.0.0.0:7118",
        "[::]:7118",
        "10.0.0.1:0",
        "255.255.255.255:7118",
        "224.0.0.1:7118",
        "[ff02::1]:7118",
        "[fe80::1]:7118",
        "[::ffff:0.0.0.0]:7118",
    ];
    for text in cannot {
        let address: SocketAddr = text.parse().unwrap();
        assert_eq!(RelayAddress::new(address), None, "{text}");
        let mut bytes = [2; LegNotice::LEN];
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[1..17].copy_from_slice(&ip.octets());
        bytes[17..].copy_from_slice(&address.port().to_le_bytes());
        assert_eq!(LegNotice::decode(&bytes), Err(WireError::Field("address")), "{text}");
    }
    let called = LegNotice::Called { from: ProcId(3), circuit: CircuitId(7) }.encode();
    for (at, field) in [(0, "notice"), (LegNotice::LEN - 1, "circuit")] {
        let mut bytes = called;
        bytes[at] = 3;
        assert_eq!(LegNotice::decode(&bytes), Err(WireError::Field(field)));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_notice_that_is_written_so_or_none(
        kind in 0u8..4,
        ip in prop_oneof![any::<[u8; 16]>(), any::<[u8; 4]>().prop_map(|ip| Ipv4Addr::from(ip).to_ipv6_mapped().octets())],
        port in any::<u16>(),
    ) {
        let bytes: Vec<u8> = [&[kind][..], &ip, &port.to_le_bytes()].concat();
        let bytes: [u8; LegNotice::LEN] = bytes.try_into().unwrap();
        if let Ok(notice) = LegNotice::decode(&bytes) {
            prop_assert_eq!(notice.encode(), bytes);
        }
    }
}
