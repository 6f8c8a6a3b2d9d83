//! Figures that are measured together.

use crate::error::BenchError;
use crate::figure::Figure;
use crate::session::Session;

/// When a group is measured that nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In every run.
    Always,
    /// Not in quick ones.
    Whole,
    /// Never.
    Named,
}

/// Figures that are measured together.
pub struct Group {
    /// As `--only` has it.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// When it is measured if no group is named.
    pub when: When,
    /// Measures them.
    pub measure: fn(&mut Session) -> Result<Vec<Figure>, BenchError>,
}

impl Group {
    /// Measures its figures. After a failure nothing of it runs any more.
    ///
    /// # Errors
    /// What is missing, or what failed.
    pub fn run(&self, session: &mut Session) -> Result<Vec<Figure>, BenchError> {
        session.until()?;
        let result = (self.measure)(session);
        if result.is_err() {
            // Whatever is left of it goes with the lab.
            session.drop_lab();
        }
        result
    }
}
