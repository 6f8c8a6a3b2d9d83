//! Senders that cannot use their share, because their receivers' windows are small: what they leave the others have.

use gridmpi_rate::PAYLOAD;

use super::conditions::observed;
use super::mode::Mode;
use super::sites::SITE;
use crate::error::BenchError;
use crate::figure::{Bound, Figure};
use crate::network::Network;
use crate::place::{Route, Site};
use crate::session::Session;

/// Nodes whose receive buffers are so small, bytes: a window of half of that a round trip.
const SMALL: [&str; 4] = ["b1", "b2", "b3", "b4"];
const SMALL_BUFFER: u32 = 32 << 10;

/// What each of the others gets at least, by an equal share of the link.
const BOUND: f64 = 1.4;

const MODES: [Mode; 3] = [Mode::Off, Mode::Static, Mode::Auto];

pub(super) fn measure(session: &mut Session) -> Result<Vec<Figure>, BenchError> {
    // At another, other windows would be small.
    let site = Site { delay_ms: 10, ..SITE };
    session.tell_own_delay("leftover", site.delay_ms);
    let route = Route::Site(site);
    session.drop_lab();
    let mut figures = Vec::new();
    for mode in MODES {
        let name = format!("8 pairs, 4 with small windows: {}", mode.name());
        let rates = session.part(&name, |session| {
            make_windows_small(session, route)?;
            run(session, &site, mode)
        });
        let Some((held_up, others, network)) = rates else { continue };
        let [small, others] = of(&site, mode, &held_up, &others);
        figures.extend([small, others.with_network(network)]);
    }
    // Its nodes are set otherwise than others want them.
    session.drop_lab();
    Ok(figures)
}

/// Of the nodes of this lab, which may be another than before.
fn make_windows_small(session: &mut Session, route: Route) -> Result<(), BenchError> {
    let until = session.until()?;
    let lab = session.lab(route)?;
    let file = "/proc/sys/net/ipv4/tcp_rmem";
    let smaller = format!("echo 4096 {SMALL_BUFFER} {SMALL_BUFFER} > {file}");
    SMALL.iter().try_for_each(|node| lab.run(node, &["sh", "-c", &smaller], until).map(drop))
}

/// What came to each node, Mbit/s on the wire: to those with small windows, and to the others; and what the network did.
fn run(
    session: &mut Session,
    site: &Site,
    mode: Mode,
) -> Result<(Vec<f64>, Vec<f64>, Network), BenchError> {
    let settings = mode.settings(site);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let seconds = [session.choose("6", "10").to_owned()];
    let (route, ranks) = (Route::Site(*site), [site.nodes; 2]);
    let (samples, network) = observed(session, site, mode, (&["a"], site.nodes), |session| {
        session.job_with(route, "leftover", &seconds, ranks, &settings)
    })?;
    let mut held_up = samples.scaled("rates", 8e-6 / PAYLOAD)?;
    let others = held_up.split_off(SMALL.len().min(held_up.len()));
    if others.is_empty() {
        return Err(BenchError::Output("the program told of too few receivers".to_owned()));
    }
    Ok((held_up, others, network))
}

fn of(site: &Site, mode: Mode, held_up: &[f64], others: &[f64]) -> [Figure; 2] {
    let equal = [f64::from(site.link_mbit) / f64::from(site.nodes)];
    let figure = |what: &str, rates: &[f64], bound| {
        let name = format!("{what}: {}", mode.name());
        Figure::new(name, "Mbit/s", rates, "equal share", &equal, bound)
    };
    let bound = if mode == Mode::Auto { Bound::RatioAtLeast(BOUND) } else { Bound::Told };
    [
        figure("each of 4 with small windows", held_up, Bound::Told),
        figure("each of the 4 others", others, bound),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_are_judged_by_an_equal_share() {
        let figures = of(&SITE, Mode::Auto, &[6.0; 4], &[30.0; 4]);
        assert_eq!((figures[0].met, figures[1].met), (None, Some(true)));
        let figures = of(&SITE, Mode::Auto, &[6.0; 4], &[20.0; 4]);
        assert_eq!(figures[1].met, Some(false));
        assert_eq!(figures[1].against.value, 20.0);
    }
}
