use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// For which every path is a long one.
const FAST: u64 = u64::MAX / 2;

/// Both ends of a connection, and the near one's descriptor once more.
fn connected() -> (TcpStream, TcpStream, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let fd = stream.try_clone().unwrap().into();
    (stream, far, fd)
}

#[test]
fn timeouts_are_shorter_where_the_kernel_lets_us_choose() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
    let before = getsockopt(&fd, RtoMin);
    shorten_timeouts(&fd);
    let after = getsockopt(&fd, RtoMin);
    let is_short = |us: u32| (RTO_MIN_US..=RTO_MIN_US + TICK_US).contains(&us);
    assert!(before.is_err() || after.is_ok_and(is_short), "{before:?} {after:?}");
}

#[test]
fn acknowledgements_are_held_briefly_where_timeouts_are_shorter() {
    let (_stream, _far, fd) = connected();
    assert!(!holds_briefly(&fd));
    let knows = getsockopt(&fd, DelackMax).is_ok();
    shorten_timeouts(&fd);
    assert_eq!(holds_briefly(&fd), knows);
}

#[test]
fn acknowledgements_wait_for_something_to_go_with_once_the_connection_is_told_so() {
    let (_stream, _far, fd) = connected();
    rustix::net::sockopt::set_tcp_quickack(&fd, true).unwrap();
    assert!(rustix::net::sockopt::tcp_quickack(&fd).unwrap());
    hold_acknowledgements(&fd);
    assert!(!rustix::net::sockopt::tcp_quickack(&fd).unwrap());
}

#[test]
fn frames_of_ipv6_have_longer_headers_those_of_ipv4_by_its_sockets_not() {
    let headers_to = |listening: &str, at: &str| {
        let listener = TcpListener::bind((listening, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = TcpStream::connect((at, port)).unwrap();
        [near, listener.accept().unwrap().0].map(|end| headers(&end.into()))
    };
    assert_eq!(headers_to("127.0.0.1", "127.0.0.1"), [HEADERS; 2]);
    assert_eq!(headers_to("::1", "::1"), [HEADERS_IPV6; 2]);
    // The far end sees the mapped address ::ffff:127.0.0.1.
    assert_eq!(headers_to("::", "127.0.0.1"), [HEADERS; 2]);
}

#[test]
fn a_higher_rate_counts_before_the_next_acknowledgement_where_there_is_an_opener() {
    let (mut stream, mut far, fd) = connected();
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    control.work(&fd, Work::alone(FAST));
    control.rest(&fd);
    set_pacing_rate(&fd, 100_000).unwrap();
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    let info = || TcpInfo::of(&fd).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while info().last_ack_recv_ms < SILENT_MS || info().unacked > 0 {
        assert!(Instant::now() < end, "{:?}", info());
        std::thread::yield_now();
    }
    set_pacing_rate(&fd, 5_000_000).unwrap();
    // The kernel by itself does nothing.
    assert!(info().pacing_rate <= 100_000, "{:?}", info());
    control.hasten(&fd, 5_000_000);
    let has_opener = getsockopt(&fd, TcpCongestion)
        .is_ok_and(|name| name.as_encoded_bytes().starts_with(b"bbr"));
    assert_eq!(info().pacing_rate > 4_000_000, has_opener, "{:?}", info());
    assert!(info().pacing_rate <= 5_000_000, "{:?}", info());
}

#[test]
fn an_opener_that_has_settled_for_less_than_the_rate_is_taken_away() {
    let (mut stream, mut far, fd) = connected();
    let name = || getsockopt(&fd, TcpCongestion).unwrap();
    let (own, info) = (name(), || TcpInfo::of(&fd).unwrap());
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    control.work(&fd, Work::alone(FAST));
    let (opener, has_opener) = (name(), name() != own);
    set_pacing_rate(&fd, 10_000_000).unwrap();
    let reader = std::thread::spawn(move || while far.read(&mut [0; 1 << 16]).unwrap() > 0 {});
    let end = Instant::now() + Duration::from_secs(30);
    while has_opener && info().snd_ssthresh == INFINITE_SSTHRESH {
        assert!(Instant::now() < end, "{:?}", info());
        stream.write_all(&[0; 1 << 16]).unwrap();
    }
    control.work(&fd, Work { is_direct: false, ..Work::alone(FAST) });
    assert_eq!(name(), opener, "a relay on the way may hold it back");
    control.work(&fd, Work::alone(FAST));
    assert_eq!(name(), own);
    assert!(!has_opener || info().snd_ssthresh == INFINITE_SSTHRESH, "{:?}", info());
    // At rest it comes again, until the connection is let go; and when it works again after that.
    control.rest(&fd);
    assert_eq!(name(), opener);
    control.let_go(&fd);
    assert_eq!((name(), control.is_short()), (own.clone(), false));
    control.work(&fd, Work::alone(FAST));
    assert_eq!(name(), opener);
    // One in eight of its round trips is at three quarters, and before it has settled nothing is less.
    let is_below = |snd_ssthresh, pacing_rate| {
        has_settled_below(&TcpInfo { snd_ssthresh, pacing_rate, ..info() }, 1000)
    };
    assert!(is_below(20, 500) && !is_below(20, 740) && !is_below(INFINITE_SSTHRESH, 500));
    drop((stream, fd));
    reader.join().unwrap();
}

#[test]
fn an_opener_begins_anew_only_where_that_is_faster_and_nothing_else_changes_it() {
    let spacing = Spacing { rate: 4_000_000, anew: 11e6, silent_ms: SILENT_MS };
    assert!(spacing.lags_behind(6_000_000));
    assert!(!spacing.lags_behind(4_000_000));
    assert!(!Spacing { anew: 4_100_000.0, ..spacing }.lags_behind(6_000_000));
    assert!(!Spacing { silent_ms: SILENT_MS - 1, ..spacing }.lags_behind(6_000_000));
    // Ten segments at 20 ms; before anything was acknowledged nothing is known.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
    let info = TcpInfo::of(&fd).unwrap();
    let info = TcpInfo { snd_cwnd: 10, snd_mss: 1448, rtt: 20_000, ..info };
    assert!((Spacing::of(&info).anew - 2_088_740.0).abs() < 1.0);
    assert!(Spacing::of(&TcpInfo { rtt: 0, ..info }).anew.is_finite());
}

#[test]
fn the_kernel_says_how_long_a_peer_does_not_read() {
    let (mut stream, mut far, fd) = connected();
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    assert_eq!(progress(&fd).unwrap().unread_us, 0);
    stream.set_nonblocking(true).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while progress(&fd).unwrap().unread_us == 0 {
        let _ = stream.write(&[0; 65536]);
        assert!(Instant::now() < end, "{:?}", progress(&fd));
        std::thread::yield_now();
    }
    assert!(progress(&fd).unwrap().unsent > 0);
}

#[test]
fn rates_above_those_of_half_a_word_are_not_cut() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
    for rate in [1 << 20, 5_000_000_000] {
        set_pacing_rate(&fd, rate).unwrap();
        assert_eq!(TcpInfo::of(&fd).unwrap().max_pacing_rate, rate);
    }
}

#[test]
fn a_fresh_connection_has_its_first_window_and_less_while_bytes_are_held_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let fd: OwnedFd = stream.try_clone().unwrap().into();
    let whole = window(&fd).unwrap();
    let info = TcpInfo::of(&fd).unwrap();
    assert_eq!(whole, (info.snd_cwnd * info.snd_mss) as usize);
    assert!((2..=1024).contains(&info.snd_cwnd) && info.snd_mss >= 500, "{info:?}");
    // A byte per second: what does not go with the first segments stays.
    set_pacing_rate(&fd, 1).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    assert_eq!(window(&fd).unwrap(), 0);
    assert!(progress(&fd).unwrap().unsent > whole);
    // With nothing for when it opens a window is asked for more.
    let shut = TcpInfo { unacked: info.snd_cwnd, ..info };
    assert_eq!(room(&shut), info.snd_mss as usize);
}

#[test]
fn a_short_path_is_left_to_the_systems_congestion_control_also_at_rest() {
    let (mut stream, mut far, fd) = connected();
    let name = || getsockopt(&fd, TcpCongestion).unwrap();
    let own = name();
    // Until there is more to send than goes at once, or it is to be spaced out, it rests as it is.
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    control.work(&fd, Work { all: 1000, ..Work::alone(FAST) });
    control.rest(&fd);
    assert_eq!(name(), own);
    control.space_out();
    control.rest(&fd);
    let spaced = name();
    let _ = setsockopt(&fd, TcpCongestion, &own);
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    control.work(&fd, Work::alone(FAST));
    control.rest(&fd);
    let opener = name();
    assert_eq!(spaced, opener);
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    far.write_all(&[0; 1000]).unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    control.work(&fd, Work::alone(1_000_000));
    assert_eq!(name(), own);
    control.rest(&fd);
    assert_eq!(name(), own);
    // One for which the path is short from the beginning never has another.
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, 1_000_000);
    assert_eq!(name(), own);
    control.rest(&fd);
    assert_eq!(name(), own);
    // At a rate for which that path is a long one the opener comes again, if there is one.
    control.work(&fd, Work::alone(FAST));
    assert_eq!(name(), opener);
}

#[test]
fn at_rest_a_window_is_opened_as_far_as_its_rate_needs_where_there_is_an_opener() {
    let (mut stream, mut far, fd) = connected();
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    let has_opener = try_congestion_control(OPENER).is_ok();
    let of = |wanted: Congestion, rate| {
        CongestionControl::new(&fd, &wanted, FAST).words_to_open(&fd, rate)
    };
    // Any window covers a short path, and others than the opener do not open it.
    assert_eq!(of(Congestion::Usual, 1000), None);
    assert_eq!(of(Congestion::System, FAST), None);
    assert_eq!(of(Congestion::Named("reno".to_owned()), FAST), None);
    let window = TcpInfo::of(&fd).unwrap().snd_cwnd;
    let words = of(Congestion::Usual, FAST);
    assert_eq!(words.map(|words| words.count), has_opener.then_some(window));
    // Who works opens it by that.
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    assert_eq!(control.words_to_open(&fd, 1000), None);
    assert_eq!(control.words_to_open(&fd, FAST).is_some(), has_opener);
    control.work(&fd, Work::alone(FAST));
    assert_eq!(control.words_to_open(&fd, FAST), None);
    control.rest(&fd);
    assert_eq!(control.words_to_open(&fd, FAST).is_some(), has_opener);
}

#[test]
fn without_an_opener_a_connection_keeps_its_own() {
    let (_stream, _far, fd) = connected();
    let name = || getsockopt(&fd, TcpCongestion).unwrap();
    let own = name();
    let mut control = CongestionControl::new(&fd, &Congestion::System, FAST);
    for _ in 0..2 {
        control.work(&fd, Work::alone(FAST));
        control.hasten(&fd, FAST);
        assert_eq!(name(), own);
        control.rest(&fd);
        assert_eq!(name(), own);
    }
}

#[test]
fn what_a_window_lets_out_goes_as_it_is_until_the_kernel_spaces_out() {
    let (mut stream, mut far, fd) = connected();
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    let at = |control: &CongestionControl| {
        let most = window(&fd).unwrap() as u64;
        [1, most, most + 1].map(|bytes| control.takes(&fd, bytes, FAST))
    };
    assert_eq!((at(&control), control.is_free()), ([true, true, false], true));
    control.space_out();
    assert_eq!((at(&control), control.is_free()), ([false; 3], false));
    // With the opener it spaces out by itself.
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    control.work(&fd, Work::alone(FAST));
    assert_eq!((at(&control), control.is_free()), ([false; 3], false));
    // Any window covers a short path.
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    let control = CongestionControl::new(&fd, &Congestion::Usual, 1000);
    assert_eq!((at(&control), control.is_free()), ([true; 3], true));
    let named = Congestion::Named("reno".to_owned());
    assert_eq!(at(&CongestionControl::new(&fd, &named, FAST)), [false; 3]);
    // Behind what the kernel holds back nothing does.
    let _ = setsockopt(&fd, TcpCongestion, &OsString::from(PLAIN));
    let control = CongestionControl::new(&fd, &Congestion::Usual, FAST);
    assert_eq!(at(&control), [true, true, false]);
    set_pacing_rate(&fd, 1).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    assert_eq!(at(&control), [false; 3]);
}

#[test]
fn a_window_that_soon_opens_is_left_to_itself_though_the_kernel_holds_something_back() {
    let (mut stream, mut far, fd) = connected();
    stream.write_all(&[0; 1000]).unwrap();
    far.read_exact(&mut [0; 1000]).unwrap();
    set_pacing_rate(&fd, 1).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    let info = TcpInfo::of(&fd).unwrap();
    let rate = (15.0 * f64::from(info.snd_mss) / f64::from(info.min_rtt) * 1e6) as u64;
    assert!(!is_short(&info, rate) && !flows(&info, rate, u64::MAX));
    let mut control = CongestionControl::new(&fd, &Congestion::Usual, rate);
    control.work(&fd, Work::alone(rate));
    assert!(control.is_free());
    control.work(&fd, Work::alone(FAST));
    assert!(!control.is_free());
}

#[test]
fn a_window_that_covers_the_path_a_round_trip_later_holds_nothing_up() {
    let (_stream, _far, fd) = connected();
    let fresh = TcpInfo {
        snd_mss: 1448,
        snd_cwnd: 10,
        snd_ssthresh: INFINITE_SSTHRESH,
        notsent_bytes: 0,
        unacked: 0,
        ..TcpInfo::of(&fd).unwrap()
    };
    let at = |info: TcpInfo, min_rtt, bytes| flows(&TcpInfo { min_rtt, ..info }, 5_000_000, bytes);
    // 20 segments take 5.8 ms.
    assert!(at(fresh, 5_700, u64::MAX) && !at(fresh, 5_900, u64::MAX));
    assert!(at(fresh, 40_000, 10 * 1448) && !at(fresh, 40_000, 10 * 1448 + 1));
    assert!(!at(fresh, u32::MAX, u64::MAX), "not known yet");
    assert!(at(TcpInfo { snd_cwnd: 40, ..fresh }, 23_000, u64::MAX));
    // What is on the way has arrived by then; what the kernel keeps is before it.
    let busy = TcpInfo { unacked: 10, ..fresh };
    assert!(at(busy, 5_700, u64::MAX) && !at(busy, 40_000, 1));
    let behind = TcpInfo { notsent_bytes: 5 * 1448, ..fresh };
    assert!(!at(behind, 5_700, u64::MAX) && at(behind, 4_300, u64::MAX));
    // Once something was lost it grows by one in a round trip.
    let lost = TcpInfo { snd_ssthresh: 10, ..fresh };
    assert!(at(lost, 2_800, u64::MAX) && !at(lost, 3_000, u64::MAX));
    let opens = |min_rtt, rate| soon_opens(&TcpInfo { min_rtt, ..fresh }, rate);
    // Thirty take 8.7 ms.
    assert!(opens(8_600, 5_000_000) && !opens(8_800, 5_000_000) && opens(8_800, 4_000_000));
}

#[test]
fn a_path_is_short_if_ten_segments_cover_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd: OwnedFd = TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
    let info = TcpInfo { snd_mss: 1448, ..TcpInfo::of(&fd).unwrap() };
    let at = |min_rtt, rate| is_short(&TcpInfo { min_rtt, ..info }, rate);
    assert!(at(100, 6_250_000) && at(1000, 6_250_000) && at(20_000, 100_000));
    assert!(!at(20_000, 6_250_000) && !at(100, 1_250_000_000));
    assert!(!at(u32::MAX, 1_000_000), "not known yet");
}
