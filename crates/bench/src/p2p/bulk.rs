//! Goodput and processor time of large messages.

use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::place::Route;
use crate::session::Session;
use crate::sockets::{self, Transfer};

const MIB: u64 = 1 << 20;
const WHOM: &str = "blocking sockets";

/// One sort of transfer: every repetition over a connection of its own that starts slowly, ours and
/// the sockets' by turns.
struct Kind {
    name: &'static str,
    message: u64,
    count: u64,
    repetitions: usize,
}

pub(super) fn measure(session: &mut Session, route: Route) -> Result<Vec<Figure>, BenchError> {
    let one = Kind {
        name: "one message of 64 MiB",
        message: 64 * MIB,
        count: 1,
        repetitions: session.choose(1, 11),
    };
    let messages = match route {
        Route::Slow => session.choose(64, 128),
        Route::Fast => session.choose(512, 2048),
        _ => session.choose(2048, 8192),
    };
    let stream = Kind {
        name: "messages of 1 MiB",
        message: MIB,
        count: messages,
        repetitions: session.choose(1, 5),
    };
    let mut figures = Vec::new();
    for kind in [one, stream] {
        figures.extend(compare(session, route, &kind)?);
    }
    Ok(figures)
}

fn compare(session: &mut Session, route: Route, kind: &Kind) -> Result<Vec<Figure>, BenchError> {
    let (mut ours, mut its) = (Vec::new(), Vec::new());
    for _ in 0..kind.repetitions {
        ours.push(by_mpi(session, route, kind)?);
        its.push(sockets::send(session, route, kind.message * kind.count)?);
    }
    let place = place(route);
    // Over a cable goodput says who else has the processors; only their time is judged.
    let goodput_bound = if route == Route::Plain { Bound::Told } else { Bound::RatioAtLeast(0.95) };
    // 64 MiB are over in some 20 ms there.
    let is_over_at_once = route == Route::Plain && kind.count == 1;
    let cost_bound = if is_over_at_once { Bound::Told } else { Bound::RatioAtMost(1.3) };
    let series = |of: &[Transfer], f: fn(&Transfer) -> f64| of.iter().map(f).collect::<Vec<_>>();
    let goodput: fn(&Transfer) -> f64 = |transfer| transfer.bytes / transfer.seconds / 1e6;
    let cost: fn(&Transfer) -> f64 = |transfer| transfer.cpu / (transfer.bytes / 1e9);
    let name = kind.name;
    Ok(vec![
        Figure::new(
            format!("{name}, {place}: goodput"),
            "MB/s",
            &series(&ours, goodput),
            WHOM,
            &series(&its, goodput),
            goodput_bound,
        ),
        Figure::new(
            format!("{name}, {place}: processor time"),
            "s/GB",
            &series(&ours, cost),
            WHOM,
            &series(&its, cost),
            cost_bound,
        ),
    ])
}

fn place(route: Route) -> &'static str {
    match route {
        Route::Slow => "10 ms, 160 Mbit/s",
        Route::Fast => "10 ms, unlimited",
        Route::Plain => "virtual cable",
        Route::Shaped => "interfaces of 160 Mbit/s",
        Route::Gigabit => "interfaces of 1 Gbit/s",
        Route::Site(_) | Route::Gateways(_) => "several nodes",
    }
}

fn by_mpi(session: &mut Session, route: Route, kind: &Kind) -> Result<Transfer, BenchError> {
    let arguments = [kind.message.to_string(), kind.count.to_string()];
    let samples = session.job(route, "bulk", &arguments, [1, 1])?;
    Transfer::of(&samples, kind.message * kind.count)
}
