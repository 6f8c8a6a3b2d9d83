//! Connections of differing paths carry in proportion: all are done at about the same time.

mod common;

use std::collections::VecDeque;

use common::*;
use gridmpi_trunk::{Bounds, Patience, Progress};
use gridmpi_wire::Strand;

const CHUNK: usize = 64 << 10;

/// A path in one direction: bytes leave a buffer of the sender's at a rate, and arrive after a delay.
struct Path {
    per_ms: usize,
    delay_ms: u64,
    buffer: usize,
    waiting: VecDeque<u8>,
    /// When, and how many.
    crossing: VecDeque<(u64, Vec<u8>)>,
    credit: usize,
}

impl Path {
    fn new((per_ms, delay_ms, buffer): (usize, u64, usize)) -> Self {
        let (waiting, crossing) = (VecDeque::new(), VecDeque::new());
        Self { per_ms, delay_ms, buffer, waiting, crossing, credit: 0 }
    }

    fn step(&mut self, now: u64) -> Vec<u8> {
        self.credit = if self.waiting.is_empty() { 0 } else { self.credit + self.per_ms };
        let bytes = self.credit.min(self.waiting.len());
        self.credit -= bytes;
        if bytes > 0 {
            self.crossing.push_back((now + self.delay_ms, self.waiting.drain(..bytes).collect()));
        }
        let mut arrived = Vec::new();
        while let Some((_, bytes)) = self.crossing.pop_front_if(|(at, _)| *at <= now) {
            arrived.extend(bytes);
        }
        arrived
    }
}

/// Milliseconds until messages of so many bytes have come, one after the other, each when the one before has come.
fn milliseconds(paths: &[(usize, u64, usize)], messages: usize, bytes: usize) -> u64 {
    milliseconds_when(paths, messages, bytes, 0)
}

/// The same, where all connections but the first are made after `late` milliseconds, if that is not 0, and what each may have on
/// its way is bounded.
fn milliseconds_when(
    paths: &[(usize, u64, usize)],
    messages: usize,
    bytes: usize,
    late: u64,
) -> u64 {
    let (mut a, mut b) = (Side::new(Bounds::default()), Side::new(Bounds::default()));
    let strands: Vec<Strand> = Strand::first(paths.len()).collect();
    let mut out: Vec<Path> = paths.iter().copied().map(Path::new).collect();
    let mut back: Vec<Path> = paths.iter().copied().map(Path::new).collect();
    let mut standing = 0;
    // What had come of each when it was looked at, and when.
    let mut before = vec![(0, 0); paths.len()];
    let (mut now, mut begun) = (0, 0);
    while !(begun == messages && b.seen.len() == a.pushed.len()) {
        while standing < if now < late { 1 } else { strands.len() } {
            connect_now(&mut a, &mut b, strands[standing]);
            if late > 0 {
                a.stream.set_reach(strands[standing], 512 << 10);
            }
            standing += 1;
        }
        if begun < messages && b.seen.len() == a.pushed.len() {
            a.push(0, CHUNK);
            (1..bytes / CHUNK).for_each(|_| a.push(1, CHUNK));
            begun += 1;
        }
        for (at, &strand) in strands[..standing].iter().enumerate() {
            write(&mut a, strand, &mut out[at]);
            write(&mut b, strand, &mut back[at]);
            let (to_b, to_a) = (out[at].step(now), back[at].step(now));
            b.lines.get_mut(&strand).unwrap().arriving.extend(to_b);
            b.take(strand, usize::MAX);
            a.lines.get_mut(&strand).unwrap().arriving.extend(to_a);
            a.take(strand, usize::MAX);
            // As a driver does: what came of it, while something was on its way.
            let (delivered, flight) = a.stream.carried(strand).unwrap();
            let (known, since) = before[at];
            if delivered > known && now >= since + 10 {
                let rate = (delivered - known) as f64 * 1e3 / (now - since) as f64;
                a.stream.set_rate(strand, rate);
                if late > 0 {
                    a.stream.set_reach(strand, (rate / 4.0) as u64);
                }
                before[at] = (delivered, now);
            } else if flight == 0 {
                before[at] = (delivered, now);
            }
        }
        if now % 3 == 0 {
            b.stream.tick(Patience::Brief);
            a.stream.tick(Patience::Brief);
        }
        now += 1;
        assert!(now < 100_000, "it never ends");
    }
    now
}

fn write(from: &mut Side, strand: Strand, path: &mut Path) {
    loop {
        let room = path.buffer - path.waiting.len();
        let result = from.stream.transmit(strand, 1 << 20, 0, |slices| {
            if room == 0 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let before = path.waiting.len();
            path.waiting.extend(all.take(room));
            Ok(path.waiting.len() - before)
        });
        if result.unwrap() != Progress::More {
            return;
        }
    }
}

/// The time that so many messages take at least.
fn ideal(paths: &[(usize, u64, usize)], messages: usize, bytes: usize) -> f64 {
    let rate: usize = paths.iter().map(|path| path.0).sum();
    let delay = paths.iter().map(|path| path.1).min().unwrap();
    messages as f64 * (bytes as f64 / rate as f64 + delay as f64)
}

#[test]
fn equal_paths_carry_equal_parts() {
    let one = (2500, 10, 1 << 20);
    for count in [1, 2, 4, 8] {
        let paths = vec![one; count];
        let (took, least) = (milliseconds(&paths, 3, 8 << 20), ideal(&paths, 3, 8 << 20));
        // The last frames of a message are not at the same place on all paths: two of them at most.
        let frames = (3 * 2 * CHUNK / one.0) as f64;
        assert!((took as f64) < least + frames, "{count}: {took} ms, at least {least}");
    }
}

#[test]
fn a_path_that_holds_much_does_not_take_what_connections_made_later_could_carry() {
    // Whatever is written is in a relay's memory, and at most 20 ms later there are seven others.
    let paths = vec![(2500, 10, 64 << 20); 8];
    let least = ideal(&paths, 1, 16 << 20);
    let bounded = milliseconds_when(&paths, 1, 16 << 20, 20);
    assert!((bounded as f64) < 1.1 * least + 20.0, "{bounded} ms, at least {least}");
}

#[test]
fn differing_paths_are_done_together() {
    let paths = [(1000, 5, 400_000), (8000, 40, 4 << 20), (2000, 10, 100_000)];
    let (took, least) = (milliseconds(&paths, 5, 16 << 20), ideal(&paths, 5, 16 << 20));
    assert!((took as f64) < 1.2 * least, "{took} ms, at least {least}");
    // One that is hardly worth having is tried once.
    let good = [(5000, 10, 1 << 20)];
    let with_bad = [good[0], (50, 100, 4 << 20)];
    let (alone, both) = (milliseconds(&good, 5, 4 << 20), milliseconds(&with_bad, 5, 4 << 20));
    let tried = (2 * CHUNK / 50 + 2 * 100) as u64;
    assert!(both < alone + alone / 10 + tried, "{alone} ms alone, {both} ms with a bad one");
}
