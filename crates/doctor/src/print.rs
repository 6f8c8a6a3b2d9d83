//! Findings for people and for programs.

use crate::facts::Facts;
use crate::finding::{Finding, Place, Severity};
use serde::Serialize;
use std::fmt::Write as _;

/// Places that are named one by one.
const MAX_PLACES: usize = 4;

/// One line for each finding, and below it what is to be written into a file; those that say that all is well only if `all`.
#[must_use]
pub fn text(findings: &[Finding], all: bool) -> String {
    let mut text = String::new();
    for finding in findings.iter().filter(|f| all || f.severity != Severity::Ok) {
        let Finding { severity, code, what, evidence, remedy, lines, .. } = finding;
        let mut line = format!("{severity:7} {}: {what}", places(&finding.places));
        if !evidence.is_empty() {
            let _ = write!(line, " ({evidence})");
        }
        if let Some(remedy) = remedy {
            let _ = write!(line, ". Remedy: {remedy}");
        }
        let _ = write!(line, " [{code}]");
        let lines = lines.iter().map(|line| format!("        {line}"));
        for line in [line].into_iter().chain(lines) {
            // Names and reasons come from other machines.
            text.extend(line.chars().map(|c| if c.is_control() { ' ' } else { c }));
            text.push('\n');
        }
    }
    text
}

fn places(places: &[Place]) -> String {
    let mut named: Vec<String> = places.iter().take(MAX_PLACES).map(Place::to_string).collect();
    if places.len() > MAX_PLACES {
        named.push(format!("and {} more", places.len() - MAX_PLACES));
    }
    named.join(", ")
}

#[derive(Serialize)]
struct Whole<'a> {
    findings: &'a [Finding],
    facts: &'a Facts,
}

/// All findings, and the facts behind them.
#[must_use]
pub fn json(findings: &[Finding], facts: &Facts) -> String {
    serde_json::to_string_pretty(&Whole { findings, facts }).unwrap_or_default()
}

/// The worst that was found.
#[must_use]
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).min().unwrap_or(Severity::Ok)
}
