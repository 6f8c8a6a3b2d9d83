//! Connections that were left alone.

use super::KEEP_ALIVE_S;
use crate::facts::Idle;
use crate::finding::{Finding, Place, Severity};

pub(super) fn judge(left_alone: &[Idle], place: Place) -> Option<Finding> {
    let tried = left_alone.iter().map(|idle| idle.seconds);
    let longest = tried.max()?;
    let dead = left_alone.iter().filter(|idle| !idle.is_alive).map(|idle| idle.seconds).min();
    let alive = |below: u32| {
        left_alone
            .iter()
            .filter(|idle| idle.is_alive && idle.seconds < below)
            .map(|idle| idle.seconds)
            .max()
    };
    let Some(dead) = dead else {
        let evidence = format!("{longest} s");
        return Some(Finding::new(
            Severity::Ok,
            "idle",
            place,
            "idle connections stay open",
            evidence,
        ));
    };
    let evidence = format!("alive after {} s, dead after {dead} s", alive(dead).unwrap_or(0));
    let what = "a NAT or firewall on the way forgets idle connections";
    if dead > KEEP_ALIVE_S {
        let finding = Finding::new(Severity::Note, "idle", place, what, evidence);
        let line = format!(
            "nothing for a job, whose connections are kept alive each {KEEP_ALIVE_S} s or sooner; for others: raise the idle timeout there (Linux: \
            sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400)"
        );
        return Some(finding.remedy(line));
    }
    let finding = Finding::new(Severity::Error, "idle", place, what, evidence);
    Some(finding.remedy("raise the idle timeout there (Linux: sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400)"))
}
