//! How exactly a paced sender keeps its rate, beside a token bucket (tbf) at the same rate: seen frame by frame where the
//! link begins.

use super::conditions::observed;
use super::gaps::{Evenness, evenness, ideal_gap_us};
use super::mode::Mode;
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{Route, Site};
use crate::session::Session;

/// Of the target, how much the mean rate may be off, percent.
const MOST_OFF: f64 = 0.5;
/// The 99th percentile of the gaps between packets, by what it would be if all were alike.
const HIGH_GAP: f64 = 1.5;
/// Each message, bytes.
const MESSAGE: u32 = 1 << 20;
/// How long a stream is, seconds; of `--quick`.
const SECONDS: u32 = 12;
const QUICK_SECONDS: u32 = 7;

/// What is sent: how fast, on the wire, and to how many nodes.
#[derive(Clone, Copy, Debug)]
struct Stream {
    mbit: u32,
    receivers: u32,
}

impl Stream {
    fn name(self) -> String {
        let Self { mbit, receivers } = self;
        let to = if receivers == 1 { String::new() } else { format!(" to {receivers} nodes") };
        format!("{mbit} Mbit/s{to}")
    }
}

const STREAMS: [Stream; 3] = [
    Stream { mbit: 20, receivers: 1 },
    Stream { mbit: 40, receivers: 1 },
    // One connection after another has its turn.
    Stream { mbit: 20, receivers: 4 },
];

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    // Frames are seen before the delay.
    session.tell_own_delay("exactness", SITE.delay_ms);
    let mut figures = Vec::new();
    for stream in &STREAMS {
        let (mut ours, mut bucket) = (Vec::new(), Vec::new());
        let mut network = None;
        for _ in 0..session.choose(1, 3) {
            for (mode, runs) in [(Mode::Static, &mut ours), (Mode::Tbf, &mut bucket)] {
                let who = if mode == Mode::Static { "ours" } else { "tbf" };
                let name = format!("{}: {who}", stream.name());
                let Some((even, seen)) = session.part(&name, |session| run(session, *stream, mode))
                else {
                    continue;
                };
                runs.push(even);
                network = Some(seen).filter(|_| mode == Mode::Static).or(network);
            }
        }
        let mut compared = compare(*stream, &ours, &bucket).into_iter();
        figures.extend(compared.next().map(|rate| match network {
            Some(network) => rate.with_network(network),
            None => rate,
        }));
        figures.extend(compared);
    }
    Ok(figures)
}

/// Paced by us (`Static`), or by the interface (`Tbf`); and what the network did.
fn run(
    session: &mut Session,
    stream: Stream,
    mode: Mode,
) -> Result<(Evenness, Network), BenchError> {
    let (Stream { mbit, receivers }, is_ours) = (stream, mode == Mode::Static);
    let interface_mbit = (!is_ours).then_some(mbit);
    let site = Site { nodes: receivers, interface_mbit, records_frames: true, ..SITE };
    let seconds = session.choose(QUICK_SECONDS, SECONDS);
    let bytes = mbit * 1_000_000 / 8 * seconds;
    let count = bytes.div_ceil(MESSAGE * receivers);
    let arguments = [MESSAGE, count, receivers].map(|number| number.to_string());
    let (target, route) = (format!("{mbit}M"), Route::Site(site));
    let paced = [("GRIDMPI_PACING", "static"), ("GRIDMPI_MATB", target.as_str())];
    let settings = if is_ours { &paced[..] } else { &[("GRIDMPI_PACING", "off")] };
    // A lab of its own: its record begins with this stream.
    session.drop_lab();
    let (_, network) = observed(session, &site, mode, (&["a"], 1), |session| {
        session.job_with(route, "stream", &arguments, [1, receivers], settings)
    })?;
    let frames = session.lab(route)?.frames("a")?;
    let too_short = || BenchError::Output(format!("the stream of {mbit} Mbit/s was too short"));
    Ok((evenness(&frames).ok_or_else(too_short)?, network))
}

fn compare(stream: Stream, ours: &[Evenness], bucket: &[Evenness]) -> Vec<Figure> {
    let target = f64::from(stream.mbit);
    let figure = |what: &str, unit, value: &dyn Fn(&Evenness) -> f64, bound| {
        let of = |runs: &[Evenness]| runs.iter().map(value).collect::<Vec<_>>();
        let name = format!("{}: {what}", stream.name());
        Figure::new(name, unit, &of(ours), "tbf", &of(bucket), bound)
    };
    let off = |even: &Evenness| 100.0 * (even.mbit - target).abs() / target;
    let by_ideal = |even: &Evenness| even.high_gap_us / ideal_gap_us(target);
    vec![
        figure("mean rate on the wire", "kbit/s", &|even| even.mbit * 1e3, Bound::Told),
        figure("off the target", "%", &off, Bound::AtMost(MOST_OFF)),
        figure("gap, median", "µs", &|even| even.median_gap_us, Bound::Told),
        figure("gap, p99", "µs", &|even| even.high_gap_us, Bound::Told),
        figure("gap, p99 by ideal", "×", &by_ideal, Bound::AtMost(HIGH_GAP)),
        figure("full frames", "", &|even| even.frames as f64, Bound::Told),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_of_the_target() {
        let even = Evenness { mbit: 19.8, median_gap_us: 615.0, high_gap_us: 900.0, frames: 9 };
        let figures = compare(STREAMS[0], &[even], &[even]);
        let met =
            |what: &str| figures.iter().find(|figure| figure.name.ends_with(what)).unwrap().met;
        assert_eq!((met("off the target"), met("by ideal")), (Some(false), Some(true)));
    }
}
