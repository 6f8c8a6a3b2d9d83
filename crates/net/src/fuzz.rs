//! Entry points for fuzzing: whatever relays tell of other relays, few are taken, and each seldom tried.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use gridmpi_leg::Notices;
use gridmpi_wire::{JobKey, LegNotice, MOST_BESIDE, ProcId};

use crate::Relays;
use crate::beside::{PAUSE_TOLD, STEADY, Standing};
use crate::relays::{PAUSE_LEAST, PAUSE_MOST, Registration, Registrations};

/// A process with three relays that tell it anything, and with such as it takes from them, that come and go.
struct Process {
    relays: Relays,
    registrations: Registrations,
    /// One for each relay; `true` where notices end, since one was none.
    notices: Vec<(Notices, bool)>,
    told: Vec<Told>,
    now: Instant,
}

/// One of those that it was told of.
struct Told {
    registration: Registration,
    begun: Option<Instant>,
    /// It has kept us when it was last there.
    has_kept: bool,
}

const NAMED: [&str; 3] = ["10.0.0.1:7118", "127.0.0.1:7118", "[fd00::1]:7118"];

impl Process {
    fn new(takes_more: bool) -> Self {
        let addresses = NAMED.iter().filter_map(|text| text.parse().ok()).collect();
        let token = JobKey::new([1; 32]);
        Self {
            relays: Relays { addresses, token, first: ProcId(0), count: 1, takes_more },
            registrations: Registrations::named(NAMED.len()),
            notices: NAMED.iter().map(|_| (Notices::default(), false)).collect(),
            told: Vec::new(),
            now: Instant::now(),
        }
    }

    /// Relay `by` says these bytes. Nothing more is read after what is no notice.
    fn hears(&mut self, by: usize, mut bytes: &[u8]) {
        while let (Some((notices, is_over @ false)), false) =
            (self.notices.get_mut(by), bytes.is_empty())
        {
            let space = notices.space();
            let (some, behind) = bytes.split_at(space.len().min(bytes.len()));
            space[..some.len()].copy_from_slice(some);
            bytes = behind;
            match notices.read(some.len()) {
                Ok(Some(LegNotice::Beside(relay))) => {
                    let told = self.registrations.told();
                    if self.relays.take(by, relay, told) {
                        let is_near = |at: usize| {
                            let relay = self.relays.addresses.get(at);
                            relay.is_some_and(|relay| relay.ip().is_loopback())
                        };
                        let at = self.registrations.add(Registration::new(Standing::Told));
                        assert!(is_near(by) || !is_near(at), "only we reach it");
                        let registration = Registration::new(Standing::Told);
                        self.told.push(Told { registration, begun: None, has_kept: false });
                        self.notices.push((Notices::default(), false));
                    }
                }
                Ok(_) => {}
                Err(_) => *is_over = true,
            }
        }
    }

    /// One of them proves the token, or its connection is over; whichever can be.
    fn turns(&mut self, which: usize) {
        let Some(told) = self.told.get_mut(which) else { return };
        if told.begun.is_none() {
            told.registration.begins(self.now);
            told.begun = Some(self.now);
            assert_ne!(told.registration.standing, Standing::Told, "it has proven the token");
        } else {
            told.ends(self.now);
        }
    }

    /// An attempt to connect to one of them fails.
    fn fails(&mut self, which: usize) {
        if let Some(told) = self.told.get_mut(which).filter(|told| told.begun.is_none()) {
            told.ends(self.now);
        }
    }

    fn check(&self) {
        let [named, told] = [NAMED.len(), self.registrations.told()];
        assert!(told <= MOST_BESIDE && (told == 0 || self.relays.takes_more));
        assert_eq!(self.relays.addresses.len(), named + told);
        assert_eq!(self.told.len(), told);
        let canonical = |it: &SocketAddr| (it.ip().to_canonical(), it.port());
        let different: HashSet<_> = self.relays.addresses.iter().map(canonical).collect();
        assert_eq!(different.len(), named + told, "one is taken for two");
        for (ip, port) in &different {
            let is_many = ip.is_multicast() || *ip == IpAddr::V4(Ipv4Addr::BROADCAST);
            assert!(*port > 0 && !ip.is_unspecified() && !is_many, "{ip}:{port} is nobody's");
        }
    }
}

impl Told {
    /// The next attempt is neither at once nor later than it may be.
    fn ends(&mut self, now: Instant) {
        let stood = self.begun.take().map(|begun| now - begun >= STEADY);
        self.has_kept = stood.unwrap_or(self.has_kept);
        let pause = self.registration.ends(now, PAUSE_MOST);
        let most = if self.has_kept { PAUSE_MOST } else { PAUSE_TOLD };
        assert!((PAUSE_LEAST..=most).contains(&pause));
        assert!(stood != Some(true) || pause == PAUSE_LEAST);
        assert_eq!(self.registration.standing == Standing::Kept, self.has_kept);
    }
}

/// What relays say to a process that is registered, while such as they tell of come and go: pieces of what event, of whom, how much and, of
/// notices, so many bytes.
pub fn beside(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut process = Process::new(!first.is_multiple_of(8));
    while let Some(([what, whose, amount], behind)) = rest.split_first_chunk::<3>() {
        rest = behind;
        let (whose, amount) = (usize::from(*whose), usize::from(*amount));
        match what % 8 {
            0 => process.now += Duration::from_millis(20 * amount as u64),
            1 => process.turns(whose % MOST_BESIDE),
            2 => process.fails(whose % MOST_BESIDE),
            _ => {
                let (said, behind) = rest.split_at(amount.min(rest.len()));
                rest = behind;
                process.hears(whose % process.notices.len(), said);
            }
        }
        process.check();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    fn event() -> impl Strategy<Value = Vec<u8>> {
        let near = prop_oneof![
            [0..4u8, 0..2, 0..2, 0..3].prop_map(|[a, b, c, d]| {
                Ipv4Addr::new([10, 127, 224, 255][usize::from(a)], b, c, d).to_ipv6_mapped()
            }),
            (0..3u128).prop_map(|last| (0xfd00 << 112 | last).into()),
        ];
        let notice = (near, 7117..7120u16).prop_map(|(ip, port): (Ipv6Addr, u16)| {
            [&[2][..], &ip.octets(), &port.to_le_bytes()].concat()
        });
        let said = (0..19u8, prop::collection::vec(notice, 1..6)).prop_map(|(whose, all)| {
            let bytes = all.concat();
            [&[3, whose, bytes.len() as u8][..], &bytes].concat()
        });
        let other = (0..3u8, any::<u8>(), any::<u8>()).prop_map(|(a, b, c)| vec![a, b, c]);
        prop_oneof![said, other]
    }

    proptest! {
        #[test]
        fn whatever_relays_tell_few_are_taken(
            first in 0u8..3,
            events in prop::collection::vec(event(), 0..80),
        ) {
            super::beside(&[&[first][..], &events.concat()].concat());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::beside(&bytes);
        }
    }
}
