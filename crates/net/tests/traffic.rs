//! Messages between networks over loopback.

mod common;

use common::*;

#[test]
fn ping_pong_asleep_and_polling() {
    let nets = nets(2);
    for (tag, finish) in [(1, finish as fn(&_, _) -> _), (2, finish_polling)] {
        std::thread::scope(|scope| {
            for me in 0..2u32 {
                let (net, other) = (&nets[me as usize], 1 - me);
                scope.spawn(move || {
                    for round in 0..200u64 {
                        if me == 0 {
                            finish(net, send(net, me, other, tag, pattern(round, 8)));
                        }
                        let (_, bytes) = finish(net, receive(net, other, tag, 8));
                        assert_eq!(bytes, Some(pattern(round, 8)));
                        if me == 1 {
                            finish(net, send(net, me, other, tag, pattern(round, 8)));
                        }
                    }
                });
            }
        });
    }
    assert_eq!(nets[0].stats().connections, 1);
    shutdown(nets);
}

#[test]
fn a_message_of_64_mib_arrives_while_nobody_calls() {
    let nets = nets(2);
    let sent = pattern(1, 64 << 20);
    let receive = receive(&nets[1], 0, 5, sent.len());
    let send = send(&nets[0], 0, 1, 5, sent.clone());
    // Nobody waits or polls: the driver threads do it all.
    eventually("the message arrives", || nets[1].lock().peek(receive).is_some());
    let (completion, bytes) = finish(&nets[1], receive);
    assert_eq!(completion.len, sent.len() as u64);
    assert!(bytes.as_deref() == Some(&sent[..]), "the bytes differ");
    finish(&nets[0], send);
    shutdown(nets);
}

#[test]
fn an_unexpected_large_message_waits_for_its_receive() {
    let nets = nets(2);
    let sent = pattern(2, 40 << 20);
    let send = send(&nets[0], 0, 1, 5, sent.clone());
    eventually("something arrives", || nets[1].stats().bytes_in > 1 << 20);
    let (_, bytes) = finish(&nets[1], receive(&nets[1], 0, 5, sent.len()));
    assert!(bytes.as_deref() == Some(&sent[..]), "the bytes differ");
    finish(&nets[0], send);
    shutdown(nets);
}

/// Every process sends messages of all sizes to every other and receives as many.
#[test]
fn three_processes_talk_all_to_all() {
    let nets = nets(3);
    let lens = [0usize, 1, 8, 100, 5_000, 70_000, 300_000, 1_000_000];
    std::thread::scope(|scope| {
        for me in 0..3u32 {
            let net = &nets[me as usize];
            scope.spawn(move || {
                let others = || (0..3u32).filter(move |&other| other != me);
                let mut sends = Vec::new();
                let mut receives = Vec::new();
                for round in 0..30u64 {
                    for other in others() {
                        let len = lens[(round as usize + me as usize) % lens.len()];
                        let seed = round << 8 | u64::from(me);
                        sends.push(send(net, me, other, round as i32, pattern(seed, len)));
                        let len = lens[(round as usize + other as usize) % lens.len()];
                        let expected = pattern(round << 8 | u64::from(other), len);
                        receives.push((receive(net, other, round as i32, len), expected));
                    }
                }
                for (request, expected) in receives {
                    let (completion, bytes) = finish(net, request);
                    assert_eq!(completion.error, None);
                    assert!(bytes == Some(expected), "the bytes differ");
                }
                for request in sends {
                    assert_eq!(finish(net, request).0.error, None);
                }
            });
        }
    });
    shutdown(nets);
}

/// Several threads of one process wait at a time, each for its own message.
#[test]
fn threads_that_wait_together_all_wake() {
    let nets = nets(2);
    std::thread::scope(|scope| {
        for tag in 0..4 {
            let nets = &nets;
            scope.spawn(move || {
                for round in 0..100u64 {
                    let wanted = receive(&nets[1], 0, tag, 64);
                    let sent = send(&nets[0], 0, 1, tag, pattern(round, 64));
                    assert_eq!(finish(&nets[1], wanted).1, Some(pattern(round, 64)));
                    finish(&nets[0], sent);
                }
            });
        }
    });
    shutdown(nets);
}

#[test]
fn crossing_dials_leave_one_connection() {
    for _ in 0..30 {
        let nets = nets(2);
        std::thread::scope(|scope| {
            for me in 0..2u32 {
                let net = &nets[me as usize];
                scope.spawn(move || {
                    let sent = send(net, me, 1 - me, 0, pattern(3, 100));
                    let (_, bytes) = finish(net, receive(net, 1 - me, 0, 100));
                    assert_eq!(bytes, Some(pattern(3, 100)));
                    finish(net, sent);
                });
            }
        });
        shutdown(nets);
    }
}
