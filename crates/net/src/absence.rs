//! What people are told while a process of another cluster cannot be reached: what a job waits for should be known long before it is given up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gridmpi_wire::{ProcId, Strand};

use crate::Failure;
use crate::state::State;
use crate::timers::Due;

/// How long nothing is said, usually: most of what is lost is made again sooner.
pub const UNSAID: Duration = Duration::from_secs(5);

/// Who is away, as people were told, since when: one process of each cluster, since the others are away for the same reason most likely.
#[derive(Debug, Default)]
pub(crate) struct Absences(BTreeMap<u16, (ProcId, Instant)>);

impl State {
    /// A connection with `id` is to be made: people are told in time, though an attempt may take longer, and none is made where that
    /// is the other side's part.
    pub(crate) fn watch_absence(&mut self, id: ProcId, strand: Strand) {
        let Some(after) = self.config.tells_of_absence else { return };
        if let Some(dial) = self.peer(id).dial(strand).filter(|dial| !dial.is_extra()) {
            let at = dial.started() + after;
            self.timers.set(at, Due::Dial(id, strand));
        }
    }

    /// The connection with `id` has been tried to be made, and is tried on.
    pub(crate) fn note_absence(&mut self, id: ProcId, strand: Strand) {
        let Some(after) = self.config.tells_of_absence else { return };
        let cluster = self.paces.place_of(id).unwrap_or(0);
        if self.absences.0.contains_key(&cluster) || self.endpoint.peer_closed(id) {
            return;
        }
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(dial) = peer.dials.iter().find(|dial| dial.strand == strand) else { return };
        let times = dial.times(Instant::now(), &self.config.limits, peer.ended.is_some());
        if dial.is_extra() || times.0 < after {
            return;
        }
        let ended = peer.ended.as_deref();
        let absent = if self.is_awaited(id) {
            Failure::awaited(id, times, ended)
        } else {
            Failure::absent(id, dial.tried(), times, ended)
        };
        self.absences.0.insert(cluster, (id, dial.started()));
        (self.config.warn)(&absent.to_string());
    }

    /// There is a connection with `id`.
    pub(crate) fn note_presence(&mut self, id: ProcId) {
        if let Some(since) = self.forget_absence(id) {
            let seconds = since.elapsed().as_secs_f64();
            (self.config.warn)(&format!("{id} is reached again, after {seconds:.1} s"));
            self.look_at_others(id);
        }
    }

    /// Others of its cluster that are waited for may have been passed over, and nothing else looks at them before they are given up.
    fn look_at_others(&mut self, of: ProcId) {
        let place = self.paces.place_of(of);
        let dials = self
            .peers
            .iter()
            .flat_map(|(&id, peer)| peer.dials.iter().map(move |dial| (id, dial.strand)));
        let is_other = |id| self.paces.place_of(id) == place && self.is_awaited(id);
        let others: Vec<_> = dials.filter(|&(id, _)| is_other(id)).collect();
        for (id, strand) in others {
            self.timers.set(Instant::now(), Due::Dial(id, strand));
        }
    }

    /// It is waited for no longer. Since when it was away, if that was told.
    pub(crate) fn forget_absence(&mut self, id: ProcId) -> Option<Instant> {
        let cluster = self.paces.place_of(id).unwrap_or(0);
        let told = self.absences.0.get(&cluster).filter(|told| told.0 == id)?;
        let since = told.1;
        self.absences.0.remove(&cluster);
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Way;
    use crate::paces::tests::{FAR, state_among};

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn when_one_that_is_waited_for_has_come_the_others_are_looked_at() {
        let other = ProcId(2);
        let mut state = state_among(vec![0, 1, 1], 1e6);
        state.config.peers = vec![Vec::new(), vec![Way::Awaited], vec![Way::Awaited]];
        state.config.tells_of_absence = Some(Duration::ZERO);
        state.config.warn = |text| SAID.lock().unwrap().push(text.to_owned());
        [FAR, other].into_iter().for_each(|id| state.dial(id));
        // What was to be looked at by now has been.
        state.timers.expired(Instant::now());
        [FAR, other].into_iter().for_each(|id| state.note_absence(id, Strand::FIRST));
        assert_eq!(SAID.lock().unwrap().len(), 1, "one of each cluster");
        state.note_presence(FAR);
        let due = state.timers.expired(Instant::now());
        assert!(due.contains(&Due::Dial(other, Strand::FIRST)), "{due:?}");
        state.note_absence(other, Strand::FIRST);
        assert_eq!(SAID.lock().unwrap().len(), 3, "{SAID:?}");
    }
}
