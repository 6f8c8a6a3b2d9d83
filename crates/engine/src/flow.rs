//! Credit: how much unexpected data each peer may have with us, and we with it.
//!
//! Both ends start from the same grant. A message uses one envelope and its eager bytes. The receiver
//! gives them back when a receive has matched, since the bytes then have a place of the program's.
//! Totals are cumulative, so that a repeated report changes nothing.

use crate::Config;

/// How many reports a whole grant makes: more cost frames, fewer leave the sender short for longer.
const REPORTS: u64 = 8;

/// How many times its grant a peer's envelopes may grow under demand: fewer would leave those waiting for ever who wait for what is behind
/// them. With the default grant a million messages, which cost up to 530 MB.
const MOST_DEBT: u64 = 63;

/// What we may still send to one peer.
#[derive(Debug)]
pub(crate) struct SendCredit {
    envelopes: u64,
    bytes: u64,
    returned_envelopes: u64,
    returned_bytes: u64,
}

impl SendCredit {
    pub(crate) const fn new(config: &Config) -> Self {
        Self {
            envelopes: config.credit_envelopes,
            bytes: config.credit_bytes,
            returned_envelopes: 0,
            returned_bytes: 0,
        }
    }

    /// Uses one envelope, if there is one.
    pub(crate) const fn take_envelope(&mut self) -> bool {
        let Some(left) = self.envelopes.checked_sub(1) else { return false };
        self.envelopes = left;
        true
    }

    /// Uses bytes for a message of `len`: as many as may be eager. A crumb that would not fill the
    /// first frame is not worth it; then none. Long messages leave an eighth of the grant to short
    /// ones, whose delay would suffer most.
    pub(crate) fn take_bytes(&mut self, len: u64, config: &Config) -> u64 {
        let chunk = u64::from(config.chunk);
        let reserve = if len > chunk { config.credit_bytes / 8 } else { 0 };
        let eager = len.min(config.eager_limit).min(self.bytes.saturating_sub(reserve));
        if eager < len.min(chunk) {
            return 0;
        }
        self.bytes -= eager;
        eager
    }

    /// The peer reports its totals.
    pub(crate) fn report(&mut self, envelopes: u64, bytes: u64) -> Result<(), &'static str> {
        let falls = "it took credit back";
        let more_envelopes = envelopes.checked_sub(self.returned_envelopes).ok_or(falls)?;
        let more_bytes = bytes.checked_sub(self.returned_bytes).ok_or(falls)?;
        self.envelopes = self.envelopes.saturating_add(more_envelopes);
        self.bytes = self.bytes.saturating_add(more_bytes);
        (self.returned_envelopes, self.returned_bytes) = (envelopes, bytes);
        Ok(())
    }
}

/// What one peer may still send to us.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    granted_envelopes: u64,
    granted_bytes: u64,
    taken_envelopes: u64,
    taken_bytes: u64,
    returned_envelopes: u64,
    returned_bytes: u64,
    reported_envelopes: u64,
    reported_bytes: u64,
    /// Envelopes returned under demand before their messages matched.
    debt: u64,
}

impl ReceiveCredit {
    pub(crate) const fn new(config: &Config) -> Self {
        Self {
            granted_envelopes: config.credit_envelopes,
            granted_bytes: config.credit_bytes,
            taken_envelopes: 0,
            taken_bytes: 0,
            returned_envelopes: 0,
            returned_bytes: 0,
            reported_envelopes: 0,
            reported_bytes: 0,
            debt: 0,
        }
    }

    /// A message with `eager` bytes has come.
    pub(crate) fn take(&mut self, eager: u64) -> Result<(), &'static str> {
        if self.is_exhausted() {
            return Err("it sent more messages than it has credit for");
        }
        let left = self.granted_bytes + self.reported_bytes - self.taken_bytes;
        if eager > left {
            return Err("it sent more bytes than it has credit for");
        }
        self.taken_envelopes += 1;
        self.taken_bytes += eager;
        Ok(())
    }

    /// A receive has matched a message with `eager` bytes.
    pub(crate) const fn give_back(&mut self, eager: u64) {
        if self.debt > 0 {
            self.debt -= 1;
        } else {
            self.returned_envelopes += 1;
        }
        self.returned_bytes += eager;
    }

    /// Whether the peer can send no message, as far as it can know.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.taken_envelopes == self.granted_envelopes + self.reported_envelopes
    }

    /// Whether a report is worth its frame.
    pub(crate) const fn is_report_due(&self) -> bool {
        let envelopes = self.returned_envelopes - self.reported_envelopes;
        let bytes = self.returned_bytes - self.reported_bytes;
        envelopes > 0 && envelopes * REPORTS >= self.granted_envelopes
            || bytes > 0 && bytes >= self.granted_bytes / REPORTS
    }

    /// The totals (envelopes, bytes), which count as reported now.
    pub(crate) const fn report(&mut self) -> (u64, u64) {
        (self.reported_envelopes, self.reported_bytes) =
            (self.returned_envelopes, self.returned_bytes);
        (self.reported_envelopes, self.reported_bytes)
    }

    /// A receive waits for a message that an exhausted peer may be holding back. MPI 4.1 §3.5,
    /// "progress": of a send and a receive that match, one completes, whatever else was sent. So
    /// report what there is, or lend envelopes; bytes need no loan, as a message can come without.
    /// Returns whether there is something to report.
    pub(crate) fn lend(&mut self) -> bool {
        if self.returned_envelopes > self.reported_envelopes {
            return true;
        }
        let room = (self.granted_envelopes * MOST_DEBT).saturating_sub(self.debt);
        let loan = (self.granted_envelopes / 4).max(1).min(room);
        self.debt += loan;
        self.returned_envelopes += loan;
        loan > 0
    }

    /// Unmatched messages and bytes that the peer has with us at most, now.
    pub(crate) const fn outstanding(&self) -> (u64, u64) {
        let messages = self.taken_envelopes + self.debt - self.returned_envelopes;
        (messages, self.taken_bytes - self.returned_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridmpi_wire::ProcId;

    fn config() -> Config {
        Config {
            eager_limit: 100,
            credit_bytes: 100,
            credit_envelopes: 2,
            chunk: 10,
            ..Config::new(ProcId(0))
        }
    }

    #[test]
    fn a_sender_stops_without_credit_and_goes_on_with_it() {
        let mut credit = SendCredit::new(&config());
        assert!(credit.take_envelope() && credit.take_envelope() && !credit.take_envelope());
        assert_eq!(credit.take_bytes(95, &config()), 88, "12 are for short messages");
        assert_eq!(credit.take_bytes(9, &config()), 9);
        assert_eq!(credit.take_bytes(4, &config()), 0, "3 bytes are left: a crumb");
        credit.report(1, 97).unwrap();
        credit.report(1, 97).unwrap();
        assert!(credit.take_envelope() && !credit.take_envelope());
        assert_eq!(credit.take_bytes(1000, &config()), 88);
        assert!(credit.report(0, 99).is_err());
    }

    #[test]
    fn a_peer_beyond_its_credit_is_refused() {
        let mut credit = ReceiveCredit::new(&config());
        assert!(credit.take(101).is_err());
        credit.take(60).unwrap();
        credit.give_back(60);
        assert!(credit.take(60).is_err(), "returned, but the peer was not told");
        credit.report();
        credit.take(60).unwrap();
        credit.take(0).unwrap();
        assert!(credit.is_exhausted());
        assert!(credit.take(0).is_err());
    }

    #[test]
    fn loans_are_bounded_and_paid_back() {
        let mut credit = ReceiveCredit::new(&config());
        let mut taken = 0;
        loop {
            while !credit.is_exhausted() {
                credit.take(0).unwrap();
                taken += 1;
            }
            if !credit.lend() {
                break;
            }
            credit.report();
        }
        assert_eq!(taken, 2 * (1 + MOST_DEBT));
        for _ in 0..taken {
            credit.give_back(0);
        }
        credit.report();
        assert_eq!(credit.outstanding(), (0, 0));
        credit.take(0).unwrap();
        credit.take(0).unwrap();
        assert!(credit.is_exhausted(), "back to the grant");
    }
}
